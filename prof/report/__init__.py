"""The web page: ``page_model`` turns a run into numbers and texts, ``render`` turns those into one file of HTML."""
