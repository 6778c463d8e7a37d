"""What a person reads of a result: one document, and its three writers.

document.py   what a document is made of: words, tables, charts, steps
terminal.py   writes it for a terminal of any width
formats.py    writes it as Markdown, without charts; and with them, by page.html, as one HTML file that asks
              nobody for anything; charts.py draws, as SVG
"""
