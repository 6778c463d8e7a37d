"""A report's pages: the same document as Markdown and as one HTML file.

document.py   what a page is made of: words, tables, charts
formats.py    the page as Markdown, without charts; and with them, by page.html, as one file that asks nobody
              for anything; charts.py draws, as SVG
"""
