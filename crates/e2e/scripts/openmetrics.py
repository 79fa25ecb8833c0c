"""Reads OpenMetrics from standard input by Prometheus's own parser, and prints its families as JSON."""

import json
import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families

families = text_string_to_metric_families(sys.stdin.read())
rows = [
    {
        "name": family.name,
        "type": family.type,
        "unit": family.unit,
        "help": family.documentation,
        "samples": [{"name": s.name, "labels": s.labels, "value": float(s.value)} for s in family.samples],
    }
    for family in families
]
json.dump(rows, sys.stdout)
