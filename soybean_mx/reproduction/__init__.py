"""The figures and tables of the SoyBean and PipeDream papers, made again.

``traffic`` (what SoyBean counts), ``networks`` (what it trains) and ``estimates`` (what a step takes on a topology) go
into ``soybean``; ``pipedream`` has its own. Both give plain JSON values, which ``figures`` draws and ``pages`` write.
"""
