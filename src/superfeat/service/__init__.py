"""The HTTP service: search, photos, explanations and a web page over one Engine. Needs superfeat[serve]."""
