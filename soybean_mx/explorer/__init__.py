"""The plan explorer: one page that shows a plan (``soybean-mx plan --html``), and the same as Graphviz."""
