"""The frontier's Lua scripts."""

from crawler.redisdb.scripts import Script, read_script


class Scripts:
    """All scripts of the frontier, composed for one kind of filter."""

    def __init__(self, filter_kind: str) -> None:
        def script(name: str) -> Script:
            return read_script("frontier", name, filter=filter_kind)

        self.open = script("open")
        self.put = script("put")
        self.settle = script("settle")
        self.claim = script("claim")
        self.beat = script("beat")
        self.reap = script("reap")
        self.sweep = script("sweep")
        self.start = script("start")
        self.finish = script("finish")
        self.leave = script("leave")
        self.fed = script("fed")
        self.replay = script("replay")
        self.audit = script("audit")
