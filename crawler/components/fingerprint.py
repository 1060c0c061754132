"""Fingerprints as scrapy-redis computes them, for crawls that took its filter over."""

import json
from hashlib import sha1

from scrapy import Request
from w3lib.url import canonicalize_url


class ScrapyRedisFingerprinter:
    """``REQUEST_FINGERPRINTER_CLASS = "crawler.components.fingerprint.ScrapyRedisFingerprinter"``.

    The SHA-1 of the sorted JSON of method, canonical URL and body in hex, as ``RFPDupeFilter`` of scrapy-redis 0.9 has
    it; Scrapy's own has the headers in it too and so differs for every request.
    """

    def fingerprint(self, request: Request) -> bytes:
        """20 bytes, of which the old filter has the hex form."""
        data = {
            "method": request.method,
            "url": canonicalize_url(request.url),
            "body": request.body.hex(),
        }
        return sha1(json.dumps(data, sort_keys=True).encode(), usedforsecurity=False).digest()
