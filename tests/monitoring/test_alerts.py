"""Alerts fire when they should and are silent when they should be, as Prometheus' own test runner sees it."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "charts" / "nightjar" / "files" / "alerts.yaml"
RUNBOOKS = ROOT / "docs" / "runbooks.md"
RULES = [rule for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]
OPERATOR = 'namespace="nj", job="nightjar-operator", pod="a"'
POD = 'namespace="team", job="team/chat", pod="chat-1"'


def by_condition(**labels):
    inside = ", ".join(f'{name}="{text}"' for name, text in labels.items())
    return f"nightjar_operator_services_by_condition{{{OPERATOR}, {inside}}}"


@dataclass(frozen=True)
class Case:
    """Series as promtool writes them, one sample a minute: what fires the alert, and what comes close to it."""

    fires: dict[str, str]
    silent: list[dict[str, str]]
    minutes: int
    """By then it fires."""
    says: str
    """Its summary, once."""


CASES = {
    "NightjarOperatorAbsent": Case(
        fires={"up": "1x30"},
        silent=[{f"nightjar_operator_leader{{{OPERATOR}}}": "0x30"}],
        minutes=11,
        says="No Nightjar operator is scraped.",
    ),
    "NightjarNoLeader": Case(
        fires={
            f"nightjar_operator_leader{{{OPERATOR}}}": "0x30",
            'nightjar_operator_leader{namespace="nj", job="nightjar-operator", pod="b"}': "0x30",
        },
        silent=[
            {
                f"nightjar_operator_leader{{{OPERATOR}}}": "0x30",
                'nightjar_operator_leader{namespace="nj", job="nightjar-operator", pod="b"}': "1x30",
            },
            # Another takes over.
            {f"nightjar_operator_leader{{{OPERATOR}}}": "1 1 1 0 0 1x30"},
        ],
        minutes=6,
        says="Nightjar operators of nj run, but none of them works.",
    ),
    "NightjarClusterNotListed": Case(
        fires={f"nightjar_operator_resync_failures_total{{{OPERATOR}}}": "0+1x40"},
        silent=[{f"nightjar_operator_resync_failures_total{{{OPERATOR}}}": "0 0 0 1x40"}],
        minutes=25,
        says="The Nightjar operator of nj cannot list the cluster.",
    ),
    "NightjarReconcileFailing": Case(
        fires={f"nightjar_operator_failing_services{{{OPERATOR}}}": "2x30"},
        silent=[{f"nightjar_operator_failing_services{{{OPERATOR}}}": "2x10 0 2x12"}],
        minutes=16,
        says="2 NightjarServices could not be reconciled for 15 minutes.",
    ),
    "NightjarServiceNotAccepted": Case(
        fires={by_condition(type="Accepted", status="False", reason="NameTaken"): "1x30"},
        silent=[{by_condition(type="Accepted", status="True", reason="Applied"): "3x30"}],
        minutes=6,
        says="1 NightjarServices are not in the cluster as their specs say: NameTaken.",
    ),
    "NightjarServiceNotReady": Case(
        fires={by_condition(type="Ready", status="False", reason="CrashLoopBackOff"): "1x30"},
        silent=[
            {by_condition(type="Ready", status="False", reason="ScaledToZero"): "1x30"},
            {by_condition(type="Ready", status="False", reason="Starting"): "1x30"},
            {by_condition(type="Ready", status="True", reason="Serving"): "1x30"},
        ],
        minutes=11,
        says="1 NightjarServices have no pod that serves: CrashLoopBackOff.",
    ),
    "NightjarRolloutStalled": Case(
        fires={by_condition(type="RolledOut", status="False", reason="Stalled"): "1x30"},
        silent=[{by_condition(type="RolledOut", status="False", reason="RollingOut"): "1x30"}],
        minutes=2,
        says="1 NightjarServices did not roll out in the time they allow.",
    ),
    "NightjarInsufficientGPU": Case(
        fires={by_condition(type="InsufficientGPU", status="True", reason="Unschedulable"): "1x30"},
        silent=[{by_condition(type="InsufficientGPU", status="False", reason="NonePending"): "1x30"}],
        minutes=16,
        says="1 NightjarServices have pods that wait for GPUs which no node has.",
    ),
    "NightjarModelUnavailable": Case(
        fires={by_condition(type="ModelUnavailable", status="True", reason="NotLoaded"): "1x30"},
        silent=[{by_condition(type="ModelUnavailable", status="False", reason="NoneLacking"): "1x30"}],
        minutes=6,
        says="1 NightjarServices have pods that could not get their models.",
    ),
    "NightjarNotAdapting": Case(
        fires={by_condition(type="Adaptive", status="False", reason="SidecarSilent"): "1x30"},
        silent=[
            {by_condition(type="Adaptive", status="False", reason="LengthPinned"): "1x30"},
            {by_condition(type="Adaptive", status="False", reason="NothingToPlan"): "1x30"},
            {by_condition(type="Adaptive", status="Unknown", reason="NotAskedYet"): "1x30"},
        ],
        minutes=11,
        says="1 NightjarServices serve with a γ that nobody plans: SidecarSilent.",
    ),
    "NightjarSettingsNotObeyed": Case(
        fires={by_condition(type="SettingsSynced", status="False", reason="Refused"): "1x30"},
        silent=[
            {by_condition(type="SettingsSynced", status="Unknown", reason="NoPod"): "1x30"},
            # They arrive.
            {by_condition(type="SettingsSynced", status="False", reason="Propagating"): "1x5 0x30"},
        ],
        minutes=16,
        says="1 NightjarServices have pods that obey older settings: Refused.",
    ),
    "NightjarEngineDisconnected": Case(
        fires={f"nightjar_engine_connected{{{POD}}}": "1 0x30", f"nightjar_engine_connections_total{{{POD}}}": "1x31"},
        silent=[
            # It loads its models.
            {f"nightjar_engine_connected{{{POD}}}": "0x30", f"nightjar_engine_connections_total{{{POD}}}": "0x30"},
            {f"nightjar_engine_connected{{{POD}}}": "1x30", f"nightjar_engine_connections_total{{{POD}}}": "3x30"},
        ],
        minutes=7,
        says="The sidecar of team/chat-1 lost its engine.",
    ),
    "NightjarPlanNotRenewed": Case(
        fires={
            f"nightjar_plan_age_seconds{{{POD}}}": "0.5x10 60+60x30",
            f"nightjar_plan_ttl_seconds{{{POD}}}": "2x40",
            f"nightjar_engine_connected{{{POD}}}": "1x40",
        },
        silent=[
            # The longest time to live is an hour, with a renewal every twenty minutes.
            {
                f"nightjar_plan_age_seconds{{{POD}}}": "0+60x19 0+60x19",
                f"nightjar_plan_ttl_seconds{{{POD}}}": "3600x40",
                f"nightjar_engine_connected{{{POD}}}": "1x40",
            },
            # A scrape that comes late now and then.
            {
                f"nightjar_plan_age_seconds{{{POD}}}": "0.5 0.5 3 0.5 0.5 3 0.5 0.5 0.5 3 0.5x20",
                f"nightjar_plan_ttl_seconds{{{POD}}}": "2x40",
                f"nightjar_engine_connected{{{POD}}}": "1x40",
            },
            # Its engine loads its models: there is nothing to send a plan to.
            {f"nightjar_plan_ttl_seconds{{{POD}}}": "0x40", f"nightjar_engine_connected{{{POD}}}": "0x40"},
            # A sidecar that is older than these metrics.
            {f"nightjar_plans_applied_total{{{POD}}}": "7x40", f"nightjar_engine_connected{{{POD}}}": "1x40"},
        ],
        minutes=18,
        says="The engine of team/chat-1 obeys no plan.",
    ),
    "NightjarReportsDropped": Case(
        fires={
            f"nightjar_step_reports_dropped_total{{{POD}}}": "0+20x40",
            f"nightjar_step_reports_total{{{POD}}}": "0+980x40",
        },
        silent=[
            {
                f"nightjar_step_reports_dropped_total{{{POD}}}": "0+5x40",
                f"nightjar_step_reports_total{{{POD}}}": "0+995x40",
            },
            # An idle engine.
            {f"nightjar_step_reports_dropped_total{{{POD}}}": "7x40", f"nightjar_step_reports_total{{{POD}}}": "9x40"},
        ],
        minutes=20,
        says="The sidecar of team/chat-1 misses 2% of its engine's steps.",
    ),
    "NightjarDraftDisagrees": Case(
        fires={
            f'nightjar_draft_tokens_accepted_total{{{POD}, position="0"}}': "0+150x90",
            f'nightjar_draft_tokens_verified_total{{{POD}, position="0"}}': "0+600x90",
        },
        silent=[
            {
                f'nightjar_draft_tokens_accepted_total{{{POD}, position="0"}}': "0+300x90",
                f'nightjar_draft_tokens_verified_total{{{POD}, position="0"}}': "0+600x90",
            },
            # A few probes say nothing, and later positions are always taken less often.
            {
                f'nightjar_draft_tokens_accepted_total{{{POD}, position="0"}}': "0+1x90",
                f'nightjar_draft_tokens_verified_total{{{POD}, position="0"}}': "0+30x90",
                f'nightjar_draft_tokens_accepted_total{{{POD}, position="4"}}': "0+1x90",
                f'nightjar_draft_tokens_verified_total{{{POD}, position="4"}}': "0+600x90",
            },
        ],
        minutes=70,
        says="The target of team/chat takes 25% of its draft's first tokens.",
    ),
    "NightjarFlapping": Case(
        fires={
            f'nightjar_gamma_switches_total{{{POD}, kind="on"}}': "0+60x60",
            f'nightjar_gamma_switches_total{{{POD}, kind="off"}}': "0+60x60",
        },
        silent=[{f'nightjar_gamma_switches_total{{{POD}, kind="length"}}': "0+600x60"}],
        minutes=30,
        says="team/chat-1 turns speculation on or off 2 times a second.",
    ),
    "NightjarStepOverhead": Case(
        fires={
            f'nightjar_step_overhead_seconds_bucket{{{POD}, le="0.001"}}': "0+90x60",
            f'nightjar_step_overhead_seconds_bucket{{{POD}, le="0.005"}}': "0+100x60",
            f'nightjar_step_overhead_seconds_bucket{{{POD}, le="+Inf"}}': "0+100x60",
        },
        silent=[
            {
                f'nightjar_step_overhead_seconds_bucket{{{POD}, le="0.001"}}': "0+100x60",
                f'nightjar_step_overhead_seconds_bucket{{{POD}, le="+Inf"}}': "0+100x60",
            }
        ],
        minutes=30,
        says="Nightjar takes 4.6ms of one step in a hundred in team/chat-1.",
    ),
    "NightjarKvCacheFull": Case(
        fires={
            f"nightjar_kv_blocks_free{{{POD}}}": "1x30",
            f"nightjar_kv_blocks{{{POD}}}": "1000x30",
            f"nightjar_requests_waiting{{{POD}}}": "5x30",
        },
        silent=[
            # Full and nobody waits; not full; not known yet.
            {
                f"nightjar_kv_blocks_free{{{POD}}}": "1x30",
                f"nightjar_kv_blocks{{{POD}}}": "1000x30",
                f"nightjar_requests_waiting{{{POD}}}": "0x30",
            },
            {
                f"nightjar_kv_blocks_free{{{POD}}}": "100x30",
                f"nightjar_kv_blocks{{{POD}}}": "1000x30",
                f"nightjar_requests_waiting{{{POD}}}": "5x30",
            },
            {
                f"nightjar_kv_blocks_free{{{POD}}}": "0x30",
                f"nightjar_kv_blocks{{{POD}}}": "0x30",
                f"nightjar_requests_waiting{{{POD}}}": "5x30",
            },
        ],
        minutes=16,
        says="Requests wait because the KV cache of team/chat-1 is full.",
    ),
    "NightjarMemoryChangesRefused": Case(
        fires={
            f'nightjar_memory_changes_refused_total{{{POD}, change="squeeze"}}': "0+110x60",
            f'nightjar_memory_change_seconds_count{{{POD}, change="expand"}}': "3x60",
        },
        silent=[
            # Others are carried out; a request was faster, now and then.
            {
                f'nightjar_memory_changes_refused_total{{{POD}, change="squeeze"}}': "0+110x60",
                f'nightjar_memory_change_seconds_count{{{POD}, change="squeeze"}}': "0 0 0 1+1x57",
            },
            {f'nightjar_memory_changes_refused_total{{{POD}, change="expand"}}': "0+1x60"},
        ],
        minutes=30,
        says="The engine of team/chat-1 refuses to squeeze, again and again.",
    ),
}


def world(series, checks):
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": checks,
    }


def firing(alert, minutes, wanted):
    expression = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})'
    samples = [{"labels": "{}", "value": wanted}] if wanted else []
    return {"expr": expression, "eval_time": f"{minutes}m", "exp_samples": samples}


def worlds(alert, case):
    yield world(case.fires, [firing(alert, case.minutes, 1)])
    for series in case.silent:
        yield world(series, [firing(alert, minutes, 0) for minutes in range(1, case.minutes + 2)])


def test_every_alert_has_a_case():
    assert list(CASES) == [rule["alert"] for rule in RULES]


def test_an_engine_that_never_took_a_plan_obeys_none(promtool, alerts, tmp_path):
    series = {f"nightjar_plan_ttl_seconds{{{POD}}}": "0x30", f"nightjar_engine_connected{{{POD}}}": "1x30"}
    tests = [world(series, [firing("NightjarPlanNotRenewed", minutes, wanted) for minutes, wanted in ((4, 0), (6, 1))])]
    file = tmp_path / "tests.yaml"
    file.write_text(json.dumps({"rule_files": [str(alerts)], "evaluation_interval": "1m", "tests": tests}))
    code, said = promtool("test", "rules", file)
    assert code == 0, said


def test_promtool_has_nothing_to_remark_on_the_rules(promtool, alerts):
    code, said = promtool("check", "rules", alerts)
    assert code == 0, said
    assert f"SUCCESS: {len(RULES)} rules found" in said


def test_alerts_fire_and_are_silent_when_they_should(promtool, alerts, tmp_path):
    tests = [one for alert, case in CASES.items() for one in worlds(alert, case)]
    file = tmp_path / "tests.yaml"
    file.write_text(json.dumps({"rule_files": [str(alerts)], "evaluation_interval": "1m", "tests": tests}))
    code, said = promtool("test", "rules", file)
    assert code == 0, said


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_in_one_sentence_what_is_wrong(promtool, alerts, tmp_path, rule):
    """promtool tells what an alert said when it said something else."""
    case = CASES[rule["alert"]]
    asked = {"alertname": rule["alert"], "eval_time": f"{case.minutes}m", "exp_alerts": []}
    series = [{"series": name, "values": values} for name, values in case.fires.items()]
    tests = [{"interval": "1m", "input_series": series, "alert_rule_test": [asked]}]
    file = tmp_path / "tests.yaml"
    file.write_text(json.dumps({"rule_files": [str(alerts)], "evaluation_interval": "1m", "tests": tests}))
    code, said = promtool("test", "rules", file)
    assert code != 0
    assert case.says in said, said


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_has_a_runbook(rule):
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert (page, anchor) == ("docs/runbooks.md", rule["alert"].lower())
    headings = re.findall(r"^## (\w+)$", RUNBOOKS.read_text(encoding="utf-8"), re.MULTILINE)
    assert rule["alert"] in headings


def test_every_runbook_belongs_to_an_alert_and_says_what_to_do():
    text = RUNBOOKS.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert list(sections) == [rule["alert"] for rule in RULES]
    for alert, section in sections.items():
        assert "**Look**" in section, alert
        assert "**Do**" in section, alert
