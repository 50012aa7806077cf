"""What classes and functions of other libraries are called here, for `from fastroai import ...`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

RENAMED: Final[Mapping[str, str]] = {
    # Stroma
    "StromaRunner": "Pipeline(name, {step_id: step}, {step_id: [what it needs]})",
    "stroma_node": "step(accepts=…, returns=…)",
    "NodeContract": "fastroai.contracts.Contract(accepts=…, returns=…)",
    "BoundaryValidator": "fastroai.contracts.Contract(…), which steps check by themselves",
    "CheckpointManager": "MemoryRunStore, SQLiteRunStore, RedisRunStore or PostgresRunStore, as store=",
    "CheckpointStore": "fastroai.store.RunStore",
    "AsyncCheckpointStore": "fastroai.store.RunStore",
    "InMemoryStore": "MemoryRunStore()",
    "AsyncInMemoryStore": "MemoryRunStore()",
    "RedisStore": "RedisRunStore(url)",
    "SyncRedisStore": "RedisRunStore(url)",
    "CostTracker": "StepContext.record_usage(…) for spending outside of agents, which are measured",
    "ModelHint": "StepContext.record_usage(model=…)",
    "NodeUsage": "fastroai.pipelines.StepUsage",
    "ExecutionBudget": "Budget(tokens=…, usd=…, ms=…)",
    "FailurePolicy": "RetryPolicy(max_retries, backoff=…)",
    "RetryBudget": "RetryPolicy(max_retries)",
    "default_policy_map": "fastroai.runtime.DEFAULT_RETRY",
    "KNOWN_MODELS": "CostCalculator(), which has the prices of genai-prices",
    "estimate_cost_usd": "CostCalculator().calculate_cost(model, input_tokens, output_tokens)",
    "NodeContext": "StepContext",
    "NodeHooks": "PipelineConfig(on_step_start=…, on_step_success=…, on_step_failure=…)",
    "RunConfig": "PipelineConfig(…), and run(run_id=…)",
    "RunStatus": "PipelineResult.status, a text",
    "ExecutionResult": "PipelineResult, or GraphResult",
    "ExecutionTrace": "fastroai.store.RunTrace",
    "TraceEvent": "fastroai.store.RunTrace.events_for(step_id)",
    # Stratum
    "StratumError": "FastroAIError",
    "StratumCompileError": "fastroai.functions.CompileError",
    "StratumWarning": "fastroai.errors.FastroAIWarning",
    "HITLTimeoutError": "fastroai.functions.HumanTimeoutError",
    "TraceRecord": "fastroai.functions.CallRecord",
    "quorum": "infer(quorum=…)",
    "all_records": "fastroai.functions.call_records()",
    "ReviewSink": "fastroai.functions.configure(review_sink=function)",
    "PendingReview": "fastroai.human.Question",
    # Hive
    "GraphExecutor": "Graph(…), and graph.run(inputs)",
    "GraphSpec": "Graph(name, goal, nodes=…, edges=…)",
    "NodeSpec": "Node(step, reads=…, writes=…)",
    "EdgeSpec": "Edge(source, target, when=…)",
    "EdgeCondition": 'Edge(source, target, when="on_failure"), a text',
    "Goal": "Graph(name, goal), a text",
    "SuccessCriterion": "Graph(name, goal), a text that says it",
    "Constraint": "Graph(name, goal), a text that says it",
    "SharedMemory": "StepContext.get_input(key), and StepContext.write(key, value)",
    "JudgeVerdict": "Verdict.accept(), Verdict.retry(feedback) or Verdict.escalate(feedback)",
    "ParallelExecutionConfig": "Graph(on_branch_failure=…, on_conflict=…, branch_timeout=…)",
    # LangGraph
    "StateGraph": "Graph(name, nodes=…, edges=…), or Pipeline if there are no loops",
    "START": "Graph(entry=…)",
    "END": "Graph(terminals=…)",
    "Command": 'Inbox(store).answer(…) to resume, Edge(when="conditional") to go to a node',
    "interrupt": "StepContext.ask(question, type)",
    "MemorySaver": "MemoryRunStore()",
    "InMemorySaver": "MemoryRunStore()",
    "SqliteSaver": "SQLiteRunStore(path)",
    "PostgresSaver": "PostgresRunStore(url)",
    # Temporal
    "workflow": "Pipeline, or Graph",
    "activity": "step",
    "Worker": "Pipeline.serve(store=…)",
    # PydanticAI
    "Agent": "FastroAgent(model), or FastroAgent(agent=agent) with an agent of PydanticAI",
    "RunContext": "pydantic_ai.RunContext in tools of agents, StepContext in steps",
    "ModelRetry": "pydantic_ai.ModelRetry",
    "Tool": "pydantic_ai.Tool",
    "UsageLimits": "Budget(usd=…, tokens=…, requests=…), or pydantic_ai.UsageLimits",
}
