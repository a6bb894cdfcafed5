"""The documented import name: each module hands on the objects of its `warm_integrations` twin."""

from warm_integrations import __version__ as __version__
