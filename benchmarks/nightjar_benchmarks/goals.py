"""What every recorded figure is measured against. Data, one line per figure."""

from dataclasses import dataclass
from typing import Literal

Comparison = Literal[">=", "<=", "==", "report"]


@dataclass(frozen=True)
class Goal:
    """`report`: the figure is wanted, whatever it is."""

    topic: str
    name: str
    comparison: Comparison
    goal: float
    unit: str

    def met(self, value: float) -> bool:
        match self.comparison:
            case ">=":
                return value >= self.goal
            case "<=":
                return value <= self.goal
            case "==":
                return value == self.goal
            case "report":
                return True


_GOALS: tuple[tuple[str, str, Comparison, float, str], ...] = (
    ("loop", "acceptance_recovery", ">=", 0.95, "×"),
    ("loop", "gamma0_vs_no_draft_b1", ">=", 0.97, "×"),
    ("loop", "gamma0_vs_no_draft_b4", ">=", 0.97, "×"),
    ("loop", "gamma0_vs_no_draft_b16", ">=", 0.97, "×"),
    ("loop", "demo_vs_no_draft", ">=", 1.0, "×"),
    ("loop", "demo_vs_fixed_3", ">=", 1.0, "×"),
    ("loop", "demo_worst_phase_ratio", ">=", 0.95, "×"),
    ("loop", "step_cost_median_us", "<=", 50, "µs"),
    ("loop", "step_cost_p99_us", "<=", 200, "µs"),
    ("loop", "sidecar_kill_failed_requests", "==", 0, "requests"),
    ("planner", "oracle_gap_2000", "<=", 0.03, "share"),
    ("planner", "win_share", ">=", 0.9, "share"),
    ("planner", "gain_over_best_single", ">=", 0.05, "share"),
    ("planner", "worst_cell_ratio", ">=", 0.98, "×"),
    ("planner", "vs_static_table", ">=", 0.99, "×"),
    ("planner", "vs_static_table_drift", ">=", 1.05, "×"),
    ("planner", "recovery_steps", "<=", 300, "steps"),
    ("planner", "exploration_cost", "<=", 0.01, "share"),
    ("planner", "decision_us", "<=", 20, "µs"),
    ("planner", "simulator_steps_per_s", ">=", 200_000, "steps/s"),
    ("planner", "suite_seconds", "<=", 300, "s"),
    ("planner", "regret_exponent", "report", 0.5, "exponent"),
    ("gpu_engine", "gamma0_vs_stock_b1", ">=", 0.99, "×"),
    ("gpu_engine", "gamma0_vs_stock_b8", ">=", 0.99, "×"),
    ("gpu_engine", "gamma0_vs_stock_b64", ">=", 0.99, "×"),
    ("gpu_engine", "gamma0_vs_stock_b256", ">=", 0.99, "×"),
    ("gpu_engine", "gamma3_vs_no_draft_b1", ">=", 1.65, "×"),
    ("gpu_engine", "gamma3_vs_no_draft_b8", ">=", 1.65, "×"),
    ("gpu_engine", "gamma3_vs_no_draft_b16", ">=", 1.65, "×"),
    ("gpu_engine", "gamma3_vs_no_draft_b32", ">=", 1.55, "×"),
    ("gpu_engine", "gamma1_vs_no_draft_b64", ">=", 1.3, "×"),
    ("gpu_engine", "gamma1_vs_no_draft_b128", ">=", 1.2, "×"),
    ("gpu_engine", "gamma3_vs_stock_gamma3_b1", ">=", 4, "×"),
    ("gpu_engine", "draft_step_ms_b1", "<=", 1.15, "ms"),
    ("gpu_engine", "lossless_requests", ">=", 1_000, "requests"),
    ("gpu_engine", "mismatched_requests", "==", 0, "requests"),
    ("gpu_engine", "acceptance_recovery", ">=", 0.95, "×"),
    ("gpu_engine", "catch_up_step_ratio", "<=", 1.5, "×"),
    ("gpu_engine", "catch_up_cost_ratio", "<=", 1.3, "×"),
    ("fused_draft", "pass_ms_b1", "<=", 0.65, "ms"),
    ("fused_draft", "pass_ms_b4", "<=", 0.8, "ms"),
    ("fused_draft", "pass_ms_b8", "<=", 0.9, "ms"),
    ("fused_draft", "pass_ms_b1_4k", "<=", 0.8, "ms"),
    ("fused_draft", "gamma3_vs_no_draft_b1", ">=", 1.95, "×"),
    ("fused_draft", "gamma3_vs_no_draft_b4", ">=", 1.8, "×"),
    ("fused_draft", "gamma3_vs_no_draft_b8", ">=", 1.75, "×"),
    ("fused_draft", "llama_1b_vs_vllm_pass", ">=", 1.4, "×"),
    ("fused_draft", "qwen3_06b_vs_vllm_pass", ">=", 1.4, "×"),
    ("fused_draft", "worst_vs_vllm_pass", ">=", 1.0, "×"),
    ("elastic", "capacity_gain_blocks", "report", 0, "blocks"),
    ("elastic", "capacity_shortfall_granules", "<=", 2, "granules"),
    ("elastic", "expand_stall_ms", "<=", 2, "ms"),
    ("elastic", "squeeze_stall_ms", "<=", 5, "ms"),
    ("elastic", "reload_vs_copy_bandwidth", ">=", 0.9, "×"),
    ("elastic", "reload_step_slowdown", "<=", 1.05, "×"),
    ("elastic", "migration_vs_copy_bandwidth", ">=", 0.8, "×"),
    ("elastic", "remap_us", "<=", 20, "µs"),
    ("elastic", "ttft_p50_ratio", "<=", 0.53, "×"),
    ("elastic", "tokens_ratio", ">=", 1.06, "×"),
    ("elastic", "cycles", ">=", 10_000, "cycles"),
    ("elastic", "mismatched_requests", "==", 0, "requests"),
    ("elastic", "leaked_granules", "==", 0, "granules"),
    ("operator", "apply_to_manifests_s", "<=", 2, "s"),
    ("operator", "idle_writes_per_minute", "==", 0, "writes/min"),
    ("operator", "tuning_latency_s", "<=", 10, "s"),
    ("operator", "tuning_restarts", "==", 0, "restarts"),
    ("operator", "services", ">=", 500, "services"),
    ("operator", "memory_mib", "<=", 300, "MiB"),
    ("operator", "resync_s", "<=", 30, "s"),
    ("operator", "reconcile_p99_s", "<=", 1, "s"),
    ("operator", "crd_kib", "<=", 100, "KiB"),
    ("operator", "fuzzed_specs", ">=", 1_000, "specs"),
    ("operator", "fuzz_failures", "==", 0, "specs"),
    ("page", "page_kib", "<=", 150, "KiB"),
    ("page", "first_paint_ms", "<=", 300, "ms"),
    ("page", "cpu_share", "<=", 0.01, "cores"),
)

GOALS = tuple(Goal(*row) for row in _GOALS)
