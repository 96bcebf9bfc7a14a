"""Extracts the text of PDF files with Debian's python3-pypdf."""

import glob
import json
import logging
import os
import sys


class Refused(Exception):
    """What the caller can put right, and how."""

    def __init__(self, error, hint):
        super().__init__(error)
        self.hint = hint


def reader():
    try:
        from pypdf import PdfReader
    except ImportError:
        try:
            from PyPDF2 import PdfReader  # the same library's name until 2022
        except ImportError:
            raise Refused(
                "the Python package pypdf is not installed",
                "on the host: sudo apt-get install python3-pypdf",
            ) from None
    logging.getLogger("pypdf").setLevel(logging.ERROR)  # it warns about every untidy PDF
    return PdfReader


def parameters():
    path = os.environ.get("SKILLBOX_PARAMS_FILE")
    if not path:
        return {}
    with open(path, encoding="utf-8") as file:
        params = json.loads(file.read() or "{}")
    if not isinstance(params, dict):
        raise Refused("the parameters must be a JSON object", "such as {}")
    return params


def extract(PdfReader, path, max_pages):
    """One file's entry. A PDF is a stranger's file and the library answers a broken one with
    nearly any exception, so all of them become this entry's error and the others still count."""
    entry = {"file": os.path.basename(path)}
    try:
        pages = PdfReader(path).pages
        entry["pages"] = len(pages)
        entry["text"] = [pages[n].extract_text() for n in range(min(len(pages), max_pages))]
    except Exception as err:
        entry["error"] = f"{type(err).__name__}: {err}"
    return entry


def main():
    params = parameters()
    max_pages = params.get("max_pages", 500)
    if isinstance(max_pages, bool) or not isinstance(max_pages, int) or max_pages < 1:
        raise Refused('"max_pages" must be a whole number above 0', "leave it out for 500")
    paths = [params["path"]] if params.get("path") else sorted(glob.glob("/input/*.pdf"))
    if not paths:
        raise Refused("there is no PDF in /input", "skillbox exec --input FILE.pdf …")
    PdfReader = reader()
    return {"files": [extract(PdfReader, path, max_pages) for path in paths]}


if __name__ == "__main__":
    try:
        result = main()
    except Refused as err:
        result = {"error": str(err), "hint": err.hint}
    except (OSError, ValueError) as err:
        result = {"error": str(err)}
    print(json.dumps(result))  # in ASCII: a broken font can yield characters that UTF-8 cannot encode
    failed = "error" in result or all("error" in entry for entry in result["files"])
    sys.exit(1 if failed else 0)
