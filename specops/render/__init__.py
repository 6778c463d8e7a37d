"""Typed settings and figures as text and pictures. Nothing here measures, sends requests or judges."""
