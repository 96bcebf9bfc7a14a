(() => {
	"use strict";
	const find = document.getElementById("find");
	const count = document.getElementById("count");
	const rows = Array.from(document.querySelectorAll(".events > li"));
	const texts = rows.map(() => null); // as they are searched, made when they first are
	const kinds = Array.from(document.querySelectorAll("input[name=kind]"));
	const verdicts = Array.from(document.querySelectorAll("input[name=verdict]"));

	const apply = () => {
		const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
		const chosen = new Set(kinds.filter((k) => k.checked).map((k) => k.value));
		const verdict = verdicts.find((v) => v.checked).value;
		let shown = 0;
		rows.forEach((row, i) => {
			let fits = (!chosen.size || chosen.has(row.dataset.k)) && (verdict === "all" || row.classList.contains(verdict));
			if (fits && words.length) {
				texts[i] ??= row.textContent.toLowerCase();
				fits = words.every((w) => texts[i].includes(w));
			}
			row.hidden = !fits;
			shown += fits;
		});
		const all = rows.length.toLocaleString("en");
		count.textContent = shown === rows.length ? all + " events" : shown.toLocaleString("en") + " of " + all + " events";
	};
	const clear = () => {
		find.value = "";
		kinds.forEach((k) => { k.checked = false; });
		verdicts.forEach((v) => { v.checked = v.value === "all"; });
		apply();
	};

	// A link to an event that the filter hides would lead nowhere.
	const reveal = () => {
		const target = document.getElementById(location.hash.slice(1));
		if (target?.hidden && rows.includes(target)) {
			clear();
			target.scrollIntoView();
		}
	};

	// Where the clipboard is not given, the remedy is selected, to be copied by hand.
	const copy = async (button, code) => {
		try {
			await navigator.clipboard.writeText(code.textContent);
			button.textContent = "Copied";
		} catch {
			getSelection().selectAllChildren(code);
			button.textContent = "Selected";
		}
		setTimeout(() => { button.textContent = "Copy"; }, 2000);
	};
	document.addEventListener("toggle", (e) => {
		const box = e.target.querySelector?.(":scope > div");
		if (!e.target.matches?.("details.remedy") || box.querySelector("button")) {
			return;
		}
		const button = document.createElement("button");
		button.type = "button";
		button.textContent = "Copy";
		button.setAttribute("aria-live", "polite");
		button.addEventListener("click", () => copy(button, box.querySelector("code")));
		box.append(button);
	}, true);

	document.getElementById("filter").hidden = false;
	document.getElementById("filter").addEventListener("input", apply);
	document.getElementById("clear").addEventListener("click", () => { clear(); find.focus(); });
	addEventListener("hashchange", reveal);
	apply();
})();
