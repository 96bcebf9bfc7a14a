"""A skill that is given paths of files: reads one, writes another beside it unless it is told where."""

import csv
import os
from decimal import Decimal
from typing import Any, Dict

from skillware.core.base_skill import BaseSkill


class InvoiceTotalsSkill(BaseSkill):
    @property
    def manifest(self) -> Dict[str, Any]:
        return {"name": "office/invoice_totals", "version": "0.2.0"}

    def execute(self, params: Dict[str, Any]) -> Any:
        path = params["csv_path"]
        if not os.path.exists(path):
            return {"error": f"File not found: {path}"}
        output = params.get("output_path") or os.path.splitext(path)[0] + "_totals.csv"
        vat = Decimal(str(params.get("vat_percent", 19))) / 100
        net = Decimal(0)
        with open(path, newline="", encoding="utf-8") as source, open(output, "w", newline="", encoding="utf-8") as target:
            rows, writer = csv.DictReader(source), csv.writer(target)
            writer.writerow(["item", "net", "gross"])
            for row in rows:
                amount = Decimal(row["quantity"]) * Decimal(row["price"])
                net += amount
                writer.writerow([row["item"], amount, amount * (1 + vat)])
        # Decimals are no JSON: the host turns them into texts.
        return {"net": net, "gross": net * (1 + vat), "output_path": output}
