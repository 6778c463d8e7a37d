"""Typed settings and figures -> text and pictures. Nothing here measures, asks or judges."""
