"""A skill with data sets beside it: JSON files that every call reads."""

import glob
import json
import os
import time
from typing import Any, Dict, Optional

from skillware.core.base_skill import BaseSkill


class AddressScreeningSkill(BaseSkill):
    def __init__(self, config: Optional[Dict[str, Any]] = None):
        super().__init__(config)
        self.key = self.credential("EXPLORER_API_KEY")
        self.data_dir = os.path.join(os.path.dirname(__file__), "data")

    @property
    def manifest(self) -> Dict[str, Any]:
        return {"name": "finance/address_screening", "version": "1.0.1"}

    def _cache(self, report):
        """Keeps a note beside the data, where it can."""
        try:
            with open(os.path.join(self.data_dir, "last.json"), "w", encoding="utf-8") as file:
                json.dump(report, file)
            return True
        except OSError:
            return False

    def execute(self, params: Dict[str, Any]) -> Dict[str, Any]:
        address = params["address"].lower()
        hits, entries = [], 0
        for path in sorted(glob.glob(os.path.join(self.data_dir, "list_*.json"))):
            with open(path, encoding="utf-8") as file:
                listed = json.load(file)
            entries += len(listed["entries"])
            hits += [{"list": listed["name"], **e} for e in listed["entries"] if e["address"] == address]
        report = {"address": address, "hits": hits, "entries": entries, "history": "offline" if self.key is None else "key given"}
        report["cached"] = self._cache(report)
        report["time"] = time.strftime("%Y-%m-%d", time.gmtime())
        return report
