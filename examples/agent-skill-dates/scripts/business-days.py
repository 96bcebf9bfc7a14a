#!/usr/bin/env python3
"""Counts business days between two dates, or adds them to a date. Prints JSON."""

import argparse
import datetime
import json

DAY = datetime.timedelta(days=1)


def dates(text):
    return {datetime.date.fromisoformat(word) for word in text.split(",") if word}


def works(day, holidays):
    return day.weekday() < 5 and day not in holidays


def between(first, last, holidays):
    """Business days from first to last, both included, in whole weeks and a remainder."""
    if last < first:
        return -between(last, first, holidays)
    days = (last - first).days + 1
    count = days // 7 * 5
    count += sum((first + n * DAY).weekday() < 5 for n in range(days % 7))
    return count - sum(first <= day <= last and day.weekday() < 5 for day in holidays)


def add(day, count, holidays):
    step = DAY if count > 0 else -DAY
    while count:
        day += step
        if works(day, holidays):
            count -= 1 if count > 0 else -1
    return day


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", metavar="FROM", type=datetime.date.fromisoformat)
    parser.add_argument("last", metavar="TO", nargs="?", type=datetime.date.fromisoformat)
    parser.add_argument("--add", metavar="N", type=int)
    parser.add_argument("--holidays", metavar="DATE,DATE…", type=dates, default=set())
    args = parser.parse_args()
    if (args.last is None) == (args.add is None):
        parser.error("give either TO or --add N")

    result = {"from": str(args.first)}
    if args.last:
        result.update(to=str(args.last), business_days=between(args.first, args.last, args.holidays))
    else:
        try:
            result.update(add=args.add, date=str(add(args.first, args.add, args.holidays)))
        except OverflowError:
            parser.error("that date is outside the years 1 to 9999")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
