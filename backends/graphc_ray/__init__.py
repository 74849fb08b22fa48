"""The roles of asynchronous runs as actors of Ray: on this machine, or on a cluster."""

from graphc_ray.sessions import RayPlugin

DRIVER = RayPlugin()

__all__ = ["DRIVER", "RayPlugin"]
