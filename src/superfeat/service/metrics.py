"""What Prometheus is told."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Counters of one service: no globals, so that two services in a process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = Counter(
            "superfeat_requests", "Requests answered.", ["route", "method", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "superfeat_request_seconds",
            "From the head of a request to the end of its answer.",
            ["route", "method"],
            buckets=BUCKETS,
            registry=self.registry,
        )

    def watch(self, name: str, help_text: str, value: Callable[[], float]) -> None:
        """A gauge that is asked when Prometheus asks."""
        Gauge(name, help_text, registry=self.registry).set_function(value)

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        self.requests.labels(route, method, str(status)).inc()
        self.seconds.labels(route, method).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)
