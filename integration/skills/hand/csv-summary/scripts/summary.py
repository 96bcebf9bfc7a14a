#!/usr/bin/env python
"""Prints count, sum, least and greatest value of each numeric column of a CSV file as JSON."""
import argparse
import csv
import json

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("file")
columns = {}
with open(parser.parse_args().file, newline="", encoding="utf-8") as file:
    for row in csv.DictReader(file):
        for name, value in row.items():
            try:
                columns.setdefault(name, []).append(float(value))
            except (TypeError, ValueError):
                pass
print(json.dumps({name: {"count": len(v), "sum": sum(v), "min": min(v), "max": max(v)} for name, v in columns.items() if v}))
