"""Scenes, camera poses, renderers, moves and the choice of the first view."""

import os

# Open3D, which is imported later, would start a server for its own viewer in every notebook.
os.environ.setdefault("OPEN3D_DISABLE_WEB_VISUALIZER", "true")

if __name__ == "rendering":  # through the link at the top of a checkout
    from roomscout.base.linked import share

    share(__name__)
