"""The lifecycle API: doors (http, proxy, runtimes, peers, stores, workers) around operations around a pure model."""
