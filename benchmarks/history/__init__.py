"""Figures that asv follows from commit to commit; asv asks for this file."""
