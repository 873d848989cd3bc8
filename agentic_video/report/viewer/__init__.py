"""The episode viewer: a self-contained HTML report of recorded episodes, or a local server for large runs.

``episodes.py`` reads records and makes the list's columns and each episode's details of them, ``pictures.py`` makes
small pictures of referenced frames, ``page.py`` writes the report, ``server.py`` serves the same page, and ``view.py``
is the way from files to either. The page itself is ``assets/``.
"""
