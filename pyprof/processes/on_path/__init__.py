"""The folder that a run puts on the PYTHONPATH of its children, which holds their sitecustomize."""
