"""A report's pages: the same document as Markdown and as one HTML file.

document.py   what a page is made of: words, tables, charts
markdown.py   without charts
html.py       with them, by page.html: one file that asks nobody for anything; charts.py draws, as SVG
"""
