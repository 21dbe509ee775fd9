"""The endpoint to which traces go."""

from lowtide.doctor.check import Answer, Surroundings
from lowtide.driver.traces import traces_of
from lowtide.worker.exporting import refusal_of


def traces(surroundings: Surroundings) -> Answer:
    """It takes spans, of which it is sent none; a job runs without it, too."""
    setting = traces_of(surroundings.conf)
    if setting is None:
        return Answer("ok", "nothing is traced")
    if refusal := refusal_of(setting.endpoint):
        way_out = "check that a collector takes OTLP over HTTP at [traces] endpoint, and OTEL_EXPORTER_OTLP_HEADERS"
        return Answer("warn", f"{setting.endpoint} takes no spans: {refusal}", way_out)
    return Answer("ok", f"{setting.endpoint} takes spans, of {setting.ratio:.4g} of the records")
