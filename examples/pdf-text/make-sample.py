"""Writes sample.pdf: two pages, one built-in font, the same bytes every time.

    python3 make-sample.py sample.pdf
"""

import sys

PAGES = [
    ["The tide table", "High water comes twice a day."],
    ["Page two", "Low water shows the path to the island."],
]


def pdf(pages):
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for n, lines in enumerate(pages):
        shown = " ".join(f"({line}) Tj T*" for line in lines)
        content = f"BT /F1 14 Tf 20 TL 72 740 Td {shown} ET"
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * n} 0 R >>"
        )
        objects.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")

    out = b"%PDF-1.4\n"
    table = "0000000000 65535 f \n"  # an entry of the cross-reference table is 20 bytes, end of line included
    for number, body in enumerate(objects, 1):
        table += f"{len(out):010} 00000 n \n"
        out += f"{number} 0 obj\n{body}\nendobj\n".encode("ascii")
    size = len(objects) + 1
    tail = f"xref\n0 {size}\n{table}trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF\n"
    return out + tail.encode("ascii")


if __name__ == "__main__":
    with open(sys.argv[1], "wb") as file:
        file.write(pdf(PAGES))
