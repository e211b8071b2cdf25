"""From a scenario file to a verdict: what is asked (scenario, timeline, expect), what came out (metrics, results)."""
