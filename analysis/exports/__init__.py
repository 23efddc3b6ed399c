"""Exports finished questions to the formats of other evaluation and training tools."""
