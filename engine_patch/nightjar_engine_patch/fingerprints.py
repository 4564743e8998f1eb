"""The functions of vLLM 0.32.0 that Nightjar replaces, extends or relies on, and the hash of their source.

Relied on means: our code would be wrong, not merely slow, if they did something else. After a look at what
changed in a new vLLM, `python -m nightjar_engine_patch.fingerprints` prints this table for it.
"""

from nightjar_engine_patch.guard import source_fingerprint

_ENGINE_ARGS = "vllm.engine.arg_utils"
_SCHEDULER = "vllm.v1.core.sched.scheduler"
_CONFIG = "vllm.config.vllm"
_CPU_WORKER = "vllm.v1.worker.cpu_worker"
_EXECUTOR = "vllm.v1.executor.multiproc_executor"
_CORE = "vllm.v1.engine.core"
_DISTRIBUTED = "vllm.distributed.utils"
_BROADCAST = "vllm.distributed.device_communicators.shm_broadcast"
_CPU_RUNNER = "vllm.v1.worker.cpu_model_runner"
_RUNNER = "vllm.v1.worker.gpu_model_runner"
_CPU_KERNELS = "vllm.utils.cpu_triton_utils"
_REJECTION = "vllm.v1.sample.rejection_sampler"
_PROPOSER = "vllm.v1.spec_decode.llm_base_proposer"
_BLOCK_POOL = "vllm.v1.core.block_pool"
_KV_UTILS = "vllm.v1.core.kv_cache_utils"
_KV_METRICS = "vllm.v1.core.kv_cache_metrics"
_KV_MANAGER = "vllm.v1.core.single_type_kv_cache_manager"
_KV_INTERFACE = "vllm.v1.kv_cache_interface"
_WORKER_UTILS = "vllm.v1.worker.utils"
_BLOCK_TABLE = "vllm.v1.worker.block_table"
_ASYNC_SCHEDULER = "vllm.v1.core.sched.async_scheduler"
_GPU_WORKER = "vllm.v1.worker.gpu_worker"
_GPU_RUNNER = "vllm.v1.worker.gpu.model_runner"
_GPU_ASYNC = "vllm.v1.worker.gpu.async_utils"
_GPU_STATES = "vllm.v1.worker.gpu.states"
_GPU_INPUT = "vllm.v1.worker.gpu.input_batch"
_GPU_BLOCK_TABLE = "vllm.v1.worker.gpu.block_table"
_GPU_GRAPHS = "vllm.v1.worker.gpu.cudagraph_utils"
_GPU_ATTENTION = "vllm.v1.worker.gpu.attn_utils"
_SPECULATOR = "vllm.v1.worker.gpu.spec_decode.speculator"
_STANDALONE = "vllm.v1.worker.gpu.spec_decode.standalone_ar.speculator"
_DRAFT_GRAPHS = "vllm.v1.worker.gpu.spec_decode.target_dependent_ar.cudagraph_utils"
_FLASH = "vllm.v1.attention.backends.flash_attn"

RECORDED: dict[tuple[str, str], str] = {
    (_ENGINE_ARGS, "EngineArgs.create_engine_config"): "6add606e6beee11d",
    (_CONFIG, "VllmConfig.num_lookahead_tokens"): "664a007d21fc9815",
    (_SCHEDULER, "Scheduler.__init__"): "9331d554ec79c0dc",
    (_SCHEDULER, "Scheduler.schedule"): "9ba0a4e5e57745c0",
    (_SCHEDULER, "Scheduler._preempt_request"): "26058746a4df5417",
    (_SCHEDULER, "Scheduler._update_after_schedule"): "42d45acb0beec8b5",
    (_SCHEDULER, "Scheduler.update_from_output"): "1a8ab7a97905d252",
    (_SCHEDULER, "Scheduler.update_draft_token_ids"): "7def7154cb6ca9e3",
    (_SCHEDULER, "Scheduler.shutdown"): "3eb78441ec3d7a74",
    (_CPU_WORKER, "CPUWorker.init_device"): "e487933c68752db7",
    (_CPU_RUNNER, "CPUModelRunner.load_model"): "88677881e6d305c2",
    (_CORE, "EngineCore.step"): "a4d753d3ba6a6d76",
    (_CORE, "EngineCore.step_with_batch_queue"): "c2a1f9e6af2f5855",
    (_CORE, "EngineCore.post_step"): "dc60620263555e0c",
    (_EXECUTOR, "MultiprocExecutor.sample_tokens"): "0df7b043309b6383",
    (_EXECUTOR, "MultiprocExecutor.take_draft_token_ids"): "be99109a97b63340",
    (_DISTRIBUTED, "sched_yield"): "dd1647deda93ff4d",
    (_BROADCAST, "SpinCondition.wait"): "d04f7adee8511ba9",
    (_RUNNER, "GPUModelRunner._prepare_inputs"): "dad567e8b3e55f8c",
    (_RUNNER, "GPUModelRunner._calc_spec_decode_metadata"): "919c83819a4ca609",
    (_RUNNER, "GPUModelRunner.execute_model"): "be53b0482c538d83",
    (_RUNNER, "GPUModelRunner.sample_tokens"): "929efbe9487dd5f4",
    (_RUNNER, "GPUModelRunner._sample"): "696606a255d43d31",
    (_RUNNER, "GPUModelRunner._input_fits_in_drafter"): "607cecf71f6a9410",
    (_RUNNER, "GPUModelRunner.propose_draft_token_ids"): "599829a38a150104",
    (_RUNNER, "GPUModelRunner.take_draft_token_ids"): "9ad11a98a982256a",
    (_RUNNER, "GPUModelRunner._copy_draft_token_ids_to_cpu"): "732905cc1196b8f8",
    (_RUNNER, "GPUModelRunner._get_draft_token_ids_cpu"): "c4b92a215ffb421d",
    (_RUNNER, "GPUModelRunner._bookkeeping_sync"): "a3c3aed1131f1b5b",
    (_RUNNER, "GPUModelRunner._update_states"): "cf0e7e1b995bad8b",
    (_CPU_KERNELS, "_expand_kernel_impl"): "cb72d4d389c5be6d",
    (_REJECTION, "expand_batch_to_tokens"): "b937d69dd008b317",
    (_REJECTION, "apply_sampling_constraints"): "de480799c7838273",
    (_REJECTION, "RejectionSampler.parse_output"): "dfb27be0216d56d4",
    (_PROPOSER, "SpecDecodeBaseProposer.build_per_group_and_layer_attn_metadata"): "dc381427748fab18",
    (_PROPOSER, "SpecDecodeBaseProposer._greedy_sample"): "d89d3e05e7dcc3d8",
    (_PROPOSER, "SpecDecodeBaseProposer.initialize_attn_backend"): "ce4777d9a120b5f8",
    (_CORE, "EngineCoreProc.run_busy_loop"): "77513f24011e2b39",
    (_CORE, "EngineCoreProc._process_input_queue"): "877492857a426bb0",
    (_CORE, "EngineCoreProc.has_work"): "738131600c84bbaa",
    (_CORE, "EngineCoreProc._handle_client_request"): "62d85392259ab99d",
    (_SCHEDULER, "Scheduler.has_requests"): "ef5fc23e4aa8031a",
    (_BLOCK_POOL, "BlockPool.__init__"): "8396305301984209",
    (_BLOCK_POOL, "BlockPool.get_new_blocks"): "e30e4bbc287b5989",
    (_BLOCK_POOL, "BlockPool.unpin_blocks"): "6355292d09b47c28",
    (_BLOCK_POOL, "BlockPool.get_usage"): "164413a1cb46c1f3",
    (_BLOCK_POOL, "BlockPool._insert_block_hash"): "8b5daa78624f1ae9",
    (_BLOCK_POOL, "BlockPool._remove_cached_block_hashes"): "5456aa307a756558",
    (_BLOCK_POOL, "BlockHashToBlockMap.insert"): "60587cfc1dec9655",
    (_BLOCK_POOL, "BlockHashToBlockMap.pop"): "c8333fab2ac07f95",
    (_KV_UTILS, "FreeKVCacheBlockQueue.prepend_n"): "207a6bd3ec4b0ac1",
    (_KV_UTILS, "FreeKVCacheBlockQueue.popleft_n"): "9c7b46256e17676b",
    (_KV_METRICS, "KVCacheMetricsCollector.on_block_allocated"): "b6ed1895f0f840d0",
    (_KV_METRICS, "KVCacheMetricsCollector.on_block_evicted"): "0d17ad7daf485716",
    (_KV_MANAGER, "SingleTypeKVCacheManager.__init__"): "86e95053acd5830a",
    (_KV_MANAGER, "SingleTypeKVCacheManager.take_new_block_ids"): "436134e3aa579025",
    (_RUNNER, "GPUModelRunner.initialize_kv_cache_tensors"): "7cb5c5b4e793102d",
    (_WORKER_UTILS, "allocate_kv_cache"): "21848da388478d6d",
    (_KV_INTERFACE, "compute_layout_strides"): "7476d5cab1a60a5d",
    (_KV_INTERFACE, "KVCacheConfig.needs_kv_cache_zeroing"): "7190a57e7cf4dcb8",
    (_KV_INTERFACE, "create_kv_cache_views"): "91be24c74d7f448d",
    (_BLOCK_TABLE, "BlockTable.append_row"): "9180f75fc326ee20",
    (_ASYNC_SCHEDULER, "AsyncScheduler._update_after_schedule"): "5b71aff1e8c9363b",
    (_ASYNC_SCHEDULER, "AsyncScheduler._update_request_with_output"): "531aa253d107986c",
    (_GPU_WORKER, "Worker._make_model_runner"): "2bda2a14b4c24812",
    (_GPU_RUNNER, "GPUModelRunner.__init__"): "bd77042a4ac6614a",
    (_GPU_RUNNER, "GPUModelRunner.add_requests"): "1fc1f8be56e57bdf",
    (_GPU_RUNNER, "GPUModelRunner.execute_model"): "a024a813691647ba",
    (_GPU_RUNNER, "GPUModelRunner.sample"): "20088238536e4758",
    (_GPU_RUNNER, "GPUModelRunner.sample_tokens"): "df6456a109ac0fcc",
    (_GPU_RUNNER, "GPUModelRunner.prepare_attn"): "f15fdfea6e536cc9",
    (_GPU_RUNNER, "GPUModelRunner.prepare_inputs"): "0ee8e8581f74b379",
    (_GPU_RUNNER, "GPUModelRunner.capture_model"): "8019021650a8f861",
    (_GPU_RUNNER, "GPUModelRunner.initialize_kv_cache"): "a5a3180a103a8e5b",
    (_GPU_RUNNER, "GPUModelRunner.update_requests"): "920b7ec4a7e55953",
    (_GPU_RUNNER, "GPUModelRunner.shutdown"): "26a30e1b268ce856",
    (_GPU_ASYNC, "AsyncOutput.__init__"): "0ecda7fa6a0d3a28",
    (_GPU_ASYNC, "AsyncOutput.get_output"): "87a05ca8f340957b",
    (_GPU_STATES, "RequestState.__init__"): "f7f6d85a7f15818c",
    (_GPU_STATES, "RequestState.add_request"): "565aaa893c41e4b1",
    (_GPU_INPUT, "_post_update_kernel"): "ff72b3eb6083b3c8",
    (_GPU_INPUT, "_combine_sampled_and_draft_tokens_kernel"): "3aa996104ebd9e14",
    (_GPU_INPUT, "InputBuffers.__init__"): "976bbf974df2599b",
    (_GPU_BLOCK_TABLE, "BlockTables.__init__"): "65195c4273dc2fce",
    (_GPU_BLOCK_TABLE, "BlockTables.append_block_ids"): "9232c590158579d3",
    (_GPU_BLOCK_TABLE, "BlockTables.apply_staged_writes"): "8e7585531d464284",
    (_GPU_BLOCK_TABLE, "BlockTables.gather_block_tables"): "5b75982e826ab454",
    (_GPU_BLOCK_TABLE, "BlockTables.compute_slot_mappings"): "e2129c7cb8d585bb",
    (_GPU_BLOCK_TABLE, "_compute_slot_mappings_kernel"): "de328c0cbe229826",
    (_GPU_GRAPHS, "CudaGraphManager._init_candidates"): "6d274dc3a02f37d9",
    (_GPU_GRAPHS, "CudaGraphManager.capture"): "9774aa3635901ea0",
    (_GPU_GRAPHS, "CudaGraphManager.run_fullgraph"): "4d5b463faf11d50f",
    (_GPU_GRAPHS, "prepare_inputs_to_capture"): "eab726a5fcbaeec7",
    (_GPU_GRAPHS, "profile_cudagraph_memory"): "8736e50a8dcbc35b",
    (_GPU_GRAPHS, "_init_minimal_kv_cache_for_profiling"): "baf03b1b811690ad",
    (_GPU_ATTENTION, "init_kv_cache"): "fa80759bac8dfeb9",
    (_GPU_ATTENTION, "build_attn_metadata"): "74ad555d4dd5f1e9",
    (_SPECULATOR, "DraftModelSpeculator.__init__"): "1647ca410af4758a",
    (_SPECULATOR, "DraftModelSpeculator.load_model"): "4452ca68c635cfa0",
    (_SPECULATOR, "DraftModelSpeculator.set_attn"): "88a1eca45ccba36c",
    (_SPECULATOR, "DraftModelSpeculator._update_draft_decode_metadata"): "8c4a0682e51227cb",
    (_STANDALONE, "StandaloneARSpeculator.__init__"): "592d5e1819debdad",
    (_STANDALONE, "StandaloneARSpeculator.propose"): "bc117882f6738082",
    (_STANDALONE, "StandaloneARSpeculator._run_model"): "f7cbc8d03e00d43a",
    (_DRAFT_GRAPHS, "SpeculatorCudaGraphManager.capture"): "da92a3644b092860",
    (_FLASH, "FlashAttentionMetadataBuilder.update_draft_decode_metadata"): "9a5fd30159056c99",
    (_FLASH, "FlashAttentionMetadataBuilder.build"): "c61f0d29448838fb",
}

if __name__ == "__main__":
    for module, name in RECORDED:
        print(f"{module} {name} {source_fingerprint(module, name)}")
