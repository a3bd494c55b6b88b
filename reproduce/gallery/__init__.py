"""Small real runs that show the readings of rules no run of the bank has: made by reproduce/record_gallery.py, read by docs/draw_detectors.py."""
