"""Digests of a text or a file, in the Skillware layout: a class with execute(params)."""

import hashlib

try:
    from skillware.core.base_skill import BaseSkill
except ImportError:

    class BaseSkill:
        """What this skill needs of Skillware's class, where Skillware is not installed."""

        def __init__(self, config=None):
            self.config = config or {}


ALGORITHMS = ("sha256", "sha512", "sha3_256", "blake2b", "sha1", "md5")


class HashSkill(BaseSkill):
    @property
    def manifest(self):
        return {"name": "skillware-hash", "version": "1.0.0"}

    def execute(self, params):
        try:
            return self._digests(params)
        except Exception as err:  # a Skillware skill reports, it does not raise
            return {"error": str(err)}

    def _digests(self, params):
        algorithms = params.get("algorithms") or ["sha256"]
        unknown = [name for name in algorithms if name not in ALGORITHMS]
        if unknown:
            raise ValueError(f"unknown algorithm {unknown[0]!r}: use one of {', '.join(ALGORITHMS)}")
        # Not for security: a host in FIPS mode refuses md5 otherwise.
        hashes = {name: hashlib.new(name, usedforsecurity=False) for name in algorithms}

        size = 0
        for block in self._blocks(params):
            size += len(block)
            for computed in hashes.values():
                computed.update(block)

        digests = {name: computed.hexdigest() for name, computed in hashes.items()}
        result = {"bytes": size, "digests": digests}
        if params.get("expected"):
            result["matches"] = str(params["expected"]).strip().lower() in digests.values()
        return result

    @staticmethod
    def _blocks(params):
        if isinstance(params.get("text"), str):
            yield params["text"].encode("utf-8")
            return
        if not params.get("path"):
            raise ValueError('give "text", or the "path" of a file such as /input/image.iso')
        with open(params["path"], "rb") as file:
            while block := file.read(1 << 20):
                yield block
