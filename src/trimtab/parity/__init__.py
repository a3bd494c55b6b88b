"""Parity: are scores of training and of evaluation comparable, by their set-ups and by paired episodes?"""
