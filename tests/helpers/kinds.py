"""Which tests `make test` runs, and which are left to `make test-all`: by path, so that a test file says nothing of it.

An entry is a folder (`tests/crash/`), a file, or `file::part` for the tests in it whose name has `part`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

FAST: Final = "not process and not slow"
"""The marker expression of `make test`."""

LONG: Final = "process or slow"
"""The marker expression of `make test-all`."""

PROCESS: Final = (
    "proof/",
    "tests/budget/test_commands.py",
    "tests/budget/test_monitor.py",
    "tests/console/test_channels.py::test_config_check",
    "tests/console/test_completion.py",
    "tests/console/test_console.py::test_help_comes_at_once",
    "tests/console/test_console.py::test_it_runs_as_a_module_too",
    "tests/console/test_grid.py::test_a_table_on_a_terminal_fits_it",
    "tests/console/test_many_sessions.py::test_a_bar_is_for_a_terminal_and_not_for_json",
    "tests/console/test_screen.py",
    "tests/console/test_supervisor.py",
    "tests/console/test_up.py",
    "tests/contracts/test_every_tool.py::[a tool of an MCP server",
    "tests/contracts/test_every_tool.py::[exec",
    "tests/contracts/test_every_tool.py::[web_fetch",
    "tests/contracts/test_every_tool.py::test_no_tool_is_offered_that_this_suite_does_not_know",
    "tests/contracts/test_every_tool_ends.py::[a tool of an MCP server",
    "tests/contracts/test_every_tool_ends.py::[exec",
    "tests/contracts/test_every_tool_ends.py::[web_fetch",
    "tests/contracts/test_every_tool_ends.py::test_a_cancellation_at_any_step_leaves_nothing_running",
    "tests/crash/",
    "tests/deploy/test_acl.py",
    "tests/deploy/test_acl_pairing.py",
    "tests/deploy/test_alerts.py",
    "tests/deploy/test_backup.py",
    "tests/deploy/test_chart.py",
    "tests/deploy/test_compose.py",
    "tests/deploy/test_containers.py",
    "tests/deploy/test_files.py",
    "tests/deploy/test_k8s.py",
    "tests/deploy/test_k8s_backup.py",
    "tests/deploy/test_k8s_docs.py",
    "tests/deploy/test_k8s_examples.py",
    "tests/deploy/test_k8s_gateways.py",
    "tests/deploy/test_k8s_processes.py",
    "tests/deploy/test_k8s_s3.py",
    "tests/deploy/test_k8s_schemas.py",
    "tests/deploy/test_k8s_sentinels.py",
    "tests/deploy/test_k8s_sentinel_pods.py",
    "tests/deploy/test_network.py",
    "tests/deploy/test_operations.py",
    "tests/deploy/test_pod_policy.py",
    "tests/deploy/test_readiness.py",
    "tests/deploy/test_redis_restart.py",
    "tests/deploy/test_rolling_update.py",
    "tests/deploy/test_security_docs.py::test_the_number_of_attempts",
    "tests/deploy/test_tracing_docs.py::test_the_example_for_kubernetes",
    "tests/deploy/test_two_installations.py",
    "tests/deploy/test_watched_fleet.py",
    "tests/e2e/",
    "tests/foreign/",
    "tests/gateway/channels/api/test_idempotency.py::test_a_killed_gateway",
    "tests/gateway/channels/api/test_idempotency.py::test_openais_own_retries_with_a_key",
    "tests/gateway/channels/api/responses/test_background.py::test_a_background_response_outlives_its_gateway",
    "tests/gateway/channels/api/responses/test_resume.py::test_a_killed_gateway_costs_no_word",
    "tests/gateway/channels/api/responses/test_stored.py::test_a_response_is_read_when_its_gateway_is_dead",
    "tests/gateway/channels/email/test_real_servers.py",
    "tests/gateway/channels/feishu/test_sdk.py",
    "tests/gateway/channels/matrix/test_real_synapse.py",
    "tests/gateway/channels/slack/test_wire.py::test_reading_needs_no_sdk",
    "tests/gateway/platform/test_registry.py::test_the_example_of_the_docs_can_be_installed",
    "tests/gateway/test_chat_channel.py",
    "tests/gateway/test_first_run.py::test_the_key_comes_back_in_no_error",
    "tests/gateway/test_renderer.py",
    "tests/gateway/test_start.py",
    "tests/gateway/test_two_gateways.py",
    "tests/records/test_rolling_update.py",
    "tests/shared/media/test_places.py",
    "tests/shared/store/test_durable.py",
    "tests/shared/test_embedded.py",
    "tests/shared/test_parser_process.py",
    "tests/shared/test_health.py::test_the_first_signal",
    "tests/shared/test_health.py::test_the_second_signal",
    "tests/shared/test_health.py::test_wrong_settings_end_the_start",
    "tests/shared/tracing/test_export.py::test_a_process_that_sends_no_traces",
    "tests/shoal/test_own_worker_example.py",
    "tests/shoal/test_plugin.py::test_one_side_does_not_load_the_other",
    "tests/test_layering.py::test_a_process_starts_without_what_it_does_not_need",
    "tests/test_layering.py::test_the_contracts_are_checked_by_import_linter_too",
    "tests/test_layering.py::test_who_outlives_the_others_needs_only_the_standard_library",
    "tests/test_makefile.py",
    "tests/test_suite.py",
    "tests/test_supply_chain.py",
    "tests/tools/test_changed.py::test_the_change_is_what_differs",
    "tests/tools/test_site.py",
    "tests/worker/agent/test_tool.py::test_specs_are_the_same_bytes_in_every_process",
    "tests/worker/arq/test_lease_worker.py",
    "tests/worker/arq/test_stock_client.py",
    "tests/worker/copies/",
    "tests/worker/documents/test_reader.py",
    "tests/worker/guards/test_shared_folder.py::test_each_side_changes_what_the_other_wrote",
    "tests/worker/llm/test_catalogue.py::test_the_table_that_is_installed_is_understood_without_its_library",
    "tests/worker/llm/test_litellm_client.py::test_litellm_tells_nobody_of_a_call",
    "tests/worker/llm/test_litellm_offline.py",
    "tests/worker/llm/test_litellm_ways.py::test_the_first_call_loads_nothing_big_and_no_sdk",
    "tests/worker/llm/test_registry.py::test_checking_presets_loads_no_client",
    "tests/worker/llm/test_registry.py::test_no_client_is_imported_before_it_is_needed",
    "tests/worker/llm/test_registry.py::test_the_direct_way_needs_no_litellm",
    "tests/worker/mcp/",
    "tests/worker/pages/test_reader.py",
    "tests/worker/process/test_guardian.py",
    "tests/worker/process/test_hidden.py",
    "tests/worker/process/test_start.py",
    "tests/worker/process/test_worker_deps.py::test_the_jobs_of_a_worker_count_what_they_use",
    "tests/worker/process/test_worker_process.py",
    "tests/worker/turn/test_workspace_turn.py::test_with_a_store",
    "tests/worker/sandbox/",
    "tests/worker/sandbox/test_parser_confinement.py",
    "tests/worker/tools/test_exec.py",
    "tests/worker/tools/test_plugins.py::test_a_worker_",
    "tests/worker/tools/test_plugins.py::test_an_installed_package_is_found_by_a_process_of_its_own",
    "tests/worker/tools/test_web_tools.py::test_a_page_is_read_with_its_title",
)
"""They start processes, browsers, peers or containers."""

SLOW: Final = (
    "tests/console/test_every_command.py::test_redis_away_is_one_line_and_exit_code_three",
    "tests/console/test_top.py::test_a_redis_that_goes_and_comes_back_is_seen_so",
    "tests/contracts/channels/test_behind_proxy.py",
    "tests/contracts/channels/test_burst.py",
    "tests/contracts/channels/test_in.py",
    "tests/contracts/channels/test_limits.py",
    "tests/contracts/channels/test_live.py",
    "tests/contracts/channels/test_out.py",
    "tests/contracts/channels/test_replicas.py",
    "tests/contracts/test_any_bytes.py::test_no_bytes_in_a_key",
    "tests/contracts/test_any_bytes.py::test_no_message_ends",
    "tests/gateway/channels/api/aisdk/test_chat.py::test_a_gateway_that_leaves_says_so",
    "tests/gateway/channels/api/test_bad_input.py::test_a_body_over_the_limit_is_not_read",
    "tests/gateway/channels/api/test_streams.py::test_a_gateway_that_goes_away_ends_what_it_cannot_finish",
    "tests/gateway/channels/api/test_streams.py::test_redis_that_stays_away",
    "tests/gateway/channels/discord/test_listener.py::test_a_session_that_is_over_begins_anew_and_history_covers_the_gap",
    "tests/gateway/channels/discord/test_listener.py::test_an_event_that_cannot_be_accepted_waits_and_no_other_chat",
    "tests/gateway/channels/email/test_listener.py::test_a_mailbox_without_idle",
    "tests/gateway/channels/email/test_smtp.py::test_a_server_that_says_nothing_is_waited_for_so_long",
    "tests/gateway/delivery/test_egress.py::test_a_lease_in_doubt_lets_nothing_out",
    "tests/gateway/delivery/test_egress.py::test_code_that_breaks_over_a_line_again_and_again_gives_it_up",
    "tests/gateway/delivery/test_egress.py::test_redis_that_stays_away_for_longer_than_a_lease_after_a_post_doubles_nothing",
    "tests/gateway/delivery/test_egress.py::test_what_waited_too_long_is_a_dead_letter",
    "tests/gateway/ingress/test_ingress.py::test_a_command_waits_for_redis_as_long_as_a_message_does",
    "tests/gateway/platform/test_listening.py::test_who_does_not_know_whether_it_has_the_lock_stops_in_time",
    "tests/gateway/test_page_reader.py::test_whatever_happens_each_socket_gets_every_line_once_and_in_order",
    "tests/gateway/test_web.py::test_a_socket_that_does_not_read_is_given_up_and_delays_nobody",
    "tests/gateway/webhooks/test_outgoing_faults.py",
    "tests/gateway/text/test_pages.py::test_work_grows_with_the_document_and_not_faster",
    "tests/gateway/text/test_pieces.py::test_every_piece_of_a_long_reply_is_well_formed_by_itself",
    "tests/records/test_two_versions.py::test_two_versions_side_by_side_lose_nothing",
    "tests/shared/store/test_approvals_machine.py",
    "tests/shared/store/test_deliveries_machine.py",
    "tests/shared/store/test_fair_share.py::test_more_chats_than_can_be_looked_at_make_room",
    "tests/shared/store/test_generations.py::test_commands_among_messages_and_workers_in_any_order_keep_the_session_whole",
    "tests/shared/store/test_script_times.py::test_no_script_holds_the_server_up",
    "tests/shared/store/test_state_machine.py",
    "tests/shared/tracing/test_export.py::test_a_collector",
    "tests/shared/tracing/test_export.py::test_certificates_are_checked",
    "tests/shared/tracing/test_export.py::test_nobody_waits_for_a_collector_that_answers_nobody",
    "tests/worker/agent/test_calls.py::test_no_argument_string_ever_crashes_a_turn",
    "tests/worker/guards/test_erasing.py::test_a_link_swapped_in_leads_nowhere",
    "tests/worker/lease/test_acquire_wait.py::test_after_an_outage_it_is_looked_twice_for_leases_that_never_arrived",
    "tests/worker/lease/test_lease_loop.py::test_an_idle_worker_sends_at_most_six_commands_a_second",
    "tests/worker/lease/test_lease_loop.py::test_the_loop_outlives_a_restart_of_redis",
    "tests/worker/llm/test_chain.py::test_a_provider_that_is_down_is_left_alone_after_a_few_faults",
    "tests/worker/llm/test_litellm_ways.py",
    "tests/worker/llm/test_openai_server.py::test_500_streams_run_at_once",
    "tests/worker/llm/test_throttle.py::test_a_crowd_on_two_workers_meets_a_busy_provider_with_few_requests",
    "tests/worker/tools/test_glob.py::test_no_pattern_makes_it_slow",
)
"""They start nothing and take longer than two seconds, by the clock of a platform or by the number of cases."""

TOGETHER: Final = (
    "tests/budget/",
    "tests/crash/test_approval_points.py",
    "tests/crash/test_crash_joined.py",
    "tests/crash/test_crash_message.py",
    "tests/crash/test_crash_points.py",
    "tests/crash/test_subagent_points.py",
    "tests/deploy/test_acl.py",
    "tests/e2e/test_chat_command.py",
    "tests/e2e/test_wheel.py",
    "tests/gateway/channels/email/test_real_servers.py",
    "tests/gateway/channels/matrix/test_real_synapse.py",
    "tests/gateway/test_renderer.py",
    "tests/records/test_rolling_update.py",
    "tests/test_layering.py",
    "tests/test_makefile.py",
)
"""Their tests share what takes seconds to start or to read, so one worker of a run gets all of a file."""

LITELLM: Final = (
    "tests/worker/llm/test_litellm_client.py",
    "tests/worker/llm/test_litellm_ways.py",
    "tests/worker/mcp/test_turn.py::[litellm]",
)
"""They import LiteLLM, which takes three seconds of a core, so one worker of a run gets all of them."""

SCENERY: Final = (
    "tests/console/test_dead.py::test_one_or_all_must_be_given",
    "tests/console/test_jobs.py::test_nothing_is_there",
    "tests/console/test_session.py::test_a_file_that_is_not_whole_changes_nothing",
    "tests/gateway/channels/api/test_bad_input.py::test_a_body_that_does_not_come_is_given_up",
    "tests/gateway/channels/api/test_bad_input.py::test_a_client_without_permission_gets_an_error",
    "tests/gateway/channels/api/test_bad_input.py::test_a_token_in_the_address_is_none",
    "tests/gateway/channels/api/test_bad_input.py::test_what_is_not_there_is_an_error_in_the_same_form",
    "tests/gateway/channels/api/test_idempotency.py::test_a_key_that_is_none_is_refused",
    "tests/gateway/test_media.py::test_a_file_is_refused_with_its_reason",
    "tests/gateway/test_media.py::test_a_message_with_a_file_that_is_not_its_own_is_refused",
    "tests/gateway/test_media.py::test_a_picture_goes_in_and_comes_out_as_a_file",
    "tests/gateway/test_media.py::test_a_stranger_stores_nothing",
    "tests/gateway/test_media.py::test_an_expired_file_is_not_found",
    "tests/gateway/test_media.py::test_nobody_else_finds_it",
    "tests/gateway/test_media.py::test_strange_paths_lead_nowhere",
    "tests/gateway/test_own_entries.py::test_a_sender_without_a_token_of_this_gateway_is_refused",
    "tests/gateway/test_web.py::test_a_page_of_another_host_is_refused_at_the_handshake",
    "tests/gateway/test_web.py::test_a_stranger_gets_one_try",
    "tests/gateway/test_web.py::test_a_token_in_the_address_opens_nothing",
    "tests/gateway/test_web.py::test_everything_that_the_page_names_is_served_from_here",
    "tests/gateway/test_web.py::test_hello_with_a_token_is_welcomed_by_name",
    "tests/gateway/test_web.py::test_http_errors_are_problem_json",
    "tests/gateway/test_web.py::test_the_page_comes_with_strict_headers_and_is_not_sent_twice",
    "tests/gateway/test_web.py::test_who_says_nothing_is_closed",
    "tests/gateway/test_web.py::test_who_shows_no_valid_token_first_is_sent_away",
)
"""Redis is scenery here: fakeredis instead of a real Valkey. It runs no Lua, which nearly all other tests need."""


def among(entries: Iterable[str], path: str, name: str = "") -> bool:
    """Whether a test, or without `name` a whole file, is one of the entries."""
    for entry in entries:
        where, _, part = entry.partition("::")
        if path == where or (where.endswith("/") and path.startswith(where)):
            if not part or (name and part in name):
                return True
    return False


def needless(markers: str, path: str) -> bool:
    """Return whether a run with this marker expression chooses no test of this file."""
    entries = (*PROCESS, *SLOW)
    if markers == FAST:
        return among(entries, path)
    return markers == LONG and not among((entry.partition("::")[0] for entry in entries), path)
