"""A skill that holds a corpus in memory: read and indexed as the module is imported, searched by each call."""

import json
import math
import os
import re
from collections import Counter, defaultdict
from typing import Any, Dict

from skillware.core.base_skill import BaseSkill

_HERE = os.path.dirname(os.path.abspath(__file__))
_WORD = re.compile(r"[a-z]{3,}")


def _articles():
    """Several thousand paragraphs, as long as a regulation is."""
    with open(os.path.join(_HERE, "corpus.json"), encoding="utf-8") as file:
        parts = json.load(file)
    for number in range(parts["articles"]):
        subject = parts["subjects"][number % len(parts["subjects"])]
        duty = parts["duties"][number // 7 % len(parts["duties"])]
        limit = parts["limits"][number // 3 % len(parts["limits"])]
        yield f"Article {number + 1}", f"{subject} {duty} {limit}"


ARTICLES = dict(_articles())
INDEX = defaultdict(Counter)
for _name, _text in ARTICLES.items():
    for _word in _WORD.findall(_text.lower()):
        INDEX[_word][_name] += 1
print(f"indexed {len(ARTICLES)} articles")  # as skills do

CALLS = 0


class RuleFinderSkill(BaseSkill):
    @property
    def manifest(self) -> Dict[str, Any]:
        return {"name": "compliance/rule_finder", "version": "0.1.1"}

    async def aexecute(self, params: Dict[str, Any]) -> Any:
        global CALLS
        CALLS += 1
        scores = Counter()
        for word in _WORD.findall(params["question"].lower()):
            found = INDEX.get(word, {})
            for name, count in found.items():
                scores[name] += count * math.log(len(ARTICLES) / len(found))
        best = scores.most_common(params.get("limit", 3))
        return {"articles": [{"article": name, "text": ARTICLES[name], "score": round(score, 3)} for name, score in best], "calls": CALLS}
