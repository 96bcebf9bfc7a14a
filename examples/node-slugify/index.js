'use strict';
// Titles into slugs. No dependencies.

const fs = require('fs');

// Letters that do not come apart into a base letter and an accent.
const LETTERS = { ß: 'ss', æ: 'ae', œ: 'oe', ø: 'o', đ: 'd', ð: 'd', þ: 'th', ł: 'l', ħ: 'h', ı: 'i', '&': ' and ' };

function slugify(text, separator, max) {
  const words = text
    .toLowerCase()
    .replace(/[ßæœøđðþłħı&]/g, (letter) => LETTERS[letter])
    .normalize('NFKD')
    .replace(/\p{Mark}|['’]/gu, '')
    .match(/[a-z0-9]+/g) || [];
  let slug = '';
  for (const word of words) {
    const longer = slug ? slug + separator + word : word.slice(0, max);
    if (longer.length > max) break; // cut between words
    slug = longer;
  }
  return slug || 'untitled';
}

// Later twins get a number: a, a-2, a-3. A number that is taken already is passed over.
function distinct(slugs, separator) {
  const taken = new Set();
  return slugs.map((slug) => {
    let name = slug;
    for (let n = 2; taken.has(name); n++) name = slug + separator + n;
    taken.add(name);
    return name;
  });
}

function main() {
  // The parameters are on stdin too; the file spares us a stdin that may be a terminal.
  const params = JSON.parse(fs.readFileSync(process.env.SKILLBOX_PARAMS_FILE || 0, 'utf8') || '{}');
  const { separator = '-', max = 80 } = params || {};
  if (!['-', '_', '.'].includes(separator)) throw new Error('"separator" must be one of - _ .');
  if (!Number.isInteger(max) || max < 8) throw new Error('"max" must be a whole number, 8 or more');
  if (params && typeof params.text === 'string') return { slug: slugify(params.text, separator, max) };
  if (params && Array.isArray(params.texts) && params.texts.every((text) => typeof text === 'string')) {
    return { slugs: distinct(params.texts.map((text) => slugify(text, separator, max)), separator) };
  }
  throw new Error('give "text", a string, or "texts", a list of strings');
}

let result;
try {
  result = main();
} catch (err) {
  result = { error: err.message };
  process.exitCode = 1;
}
console.log(JSON.stringify(result));
