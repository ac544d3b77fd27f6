"""Stand in for `json`: `_json` only needs the exception of `json.decoder`."""
