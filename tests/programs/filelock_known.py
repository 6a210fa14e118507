# SPDX-License-Identifier: Apache-2.0
"""The tests of filelock that end otherwise on lock files of all jobs than natively (docs/locks.md, "Lock files").

By module, without the prefix "test_", and without parameters if they do not matter. Each ends otherwise in all
versions that have it, or with "@N" in all N.x.
"""

# Such a file has the mode 0666, whatever its maker asks for.
MODE = {
    "test_default_mode": """
        default_mode_respects_umask""",
    "test_filelock": """
        contender_preserves_holder_mode lock_mode_soft@3""",
    "test_util": """
        writability_allows_creation_after_marker_disappears writability_rejects_denied_marker""",
}
# A stale marker or an expired lock is broken by a rename of the lock file, which gives EXDEV.
RENAME = {
    "test_lock_expiry": """
        async_expired_lock_is_broken@4 expired_lock_becomes_acquirable expired_lock_is_broken
        expired_soft_lock_is_broken""",
    "test_marker_records": """
        lease_ages_out_a_malformed_record""",
    "test_soft_lease": """
        lease_peer_takes_an_expired_claim lease_reclaims_a_dead_same_host_holder
        lease_self_heals_a_malformed_marker lease_supersedes_a_live_holder_once_its_claim_ages_out""",
    "test_soft_stale": """
        out_of_range_pid_self_heals_when_old recycled_pid_marker_self_heals
        recycled_pid_marker_self_heals_only_in_its_pid_namespace stale_lock_broken_when_process_dead
        stale_lock_empty_file_evicted_when_old stale_lock_malformed_evicted_when_old
        stale_lock_three_line_format_accepted unparseable_lock_evicted_when_old""",
    "test_util": """
        break_lock_file_break_name_is_unguessable
        break_lock_file_keeps_a_third_marker_created_after_the_rename
        break_lock_file_leaves_a_marker_recreated_since_the_stale_check
        break_lock_file_restores_a_recreated_marker break_lock_file_unlinks_a_dead_holders_marker""",
}
# A StrictSoftFileLock is published by a link of a private file to the lock's name, which gives EPERM.
LINK = {
    "test_async_soft_contracts": """
        async_strict_publishes_a_held_claim""",
    "test_filelock": """
        shared_instance_concurrent_acquire_release_leaves_lock_free[strict]""",
    "test_host_name_grammar": """
        strict_soft_file_lock_reads_back_its_own_claim""",
    "test_soft_lease": """
        lease_does_not_expire_a_strict_holder""",
    "test_strict_soft": """
        async_strict_soft_matches_claim_protocol legacy_client_cannot_cross_permanent_sentinel
        strict_soft_acquire_publishes_owner_claim strict_soft_contender_times_out
        strict_soft_force_break_accepts_newer_version_claim
        strict_soft_force_break_names_guarantee_loss strict_soft_force_break_requires_exact_case
        strict_soft_invalid_claim_fails_closed strict_soft_is_reentrant
        strict_soft_orphan_claim_blocks_without_reclamation
        strict_soft_preserves_sentinel_when_requested
        strict_soft_reclaims_an_aged_sentinel_private_record
        strict_soft_sentinel_inspection_failure_closes_descriptor
        strict_soft_symlink_claim_fails_closed strict_soft_waits_for_legacy_holder
        strict_soft_write_failure_leaves_no_public_claim""",
    "test_strict_soft_failures": """
        strict_soft_acquire_finishes_an_exited_threads_pending_doorway
        strict_soft_acquire_leaves_a_live_threads_pending_doorway_alone
        strict_soft_acquires_without_dir_fd strict_soft_claim_directory_read_error_fails_closed
        strict_soft_claim_replaced_while_opening_fails_closed
        strict_soft_claims_inspection_creates_no_file strict_soft_discard_sentinel_close_failure
        strict_soft_doorway_claim_unlink_failure_stays_pending
        strict_soft_doorway_preserves_every_claim_cleanup_error
        strict_soft_dropped_instance_removes_pending_claims
        strict_soft_failed_clock_probe_does_not_fail_the_scan
        strict_soft_force_break_directory_close_failure
        strict_soft_force_break_during_doorway_backs_off
        strict_soft_force_break_held_during_doorway_backs_off
        strict_soft_held_collision_does_not_delete_foreign_claim
        strict_soft_held_directory_close_failure_removes_both_claims
        strict_soft_held_link_and_directory_close_failure
        strict_soft_held_publication_failure_rolls_back_intent
        strict_soft_intent_token_collision_does_not_claim_lock
        strict_soft_invalid_record_node_fails_closed
        strict_soft_link_and_directory_close_failures_preserve_both
        strict_soft_lock_path_occupant_is_none_for_the_sentinel
        strict_soft_lost_link_reply_counts_as_committed
        strict_soft_lost_link_reply_survives_a_peer_reaping_the_source
        strict_soft_private_close_failure_removes_public_claim
        strict_soft_private_inspection_failure_unlinks_vanished_record
        strict_soft_private_record_reclaimed_after_close_is_tolerated
        strict_soft_publication_directory_close_failure
        strict_soft_publication_record_reclaimed_aborts
        strict_soft_publication_record_replaced_aborts
        strict_soft_reaper_ages_records_by_filesystem_clock
        strict_soft_reaper_does_not_retry_sharing_error
        strict_soft_reaper_leaves_non_regular_private_node
        strict_soft_reaper_removes_private_after_publication
        strict_soft_reaper_removes_private_before_publication
        strict_soft_reaper_replacement_only_aborts_publisher
        strict_soft_reaper_without_filesystem_clock_keeps_records
        strict_soft_record_finalization_close_and_unlink_failures_group
        strict_soft_release_claim_unlink_failures_group
        strict_soft_release_commits_before_directory_close_error
        strict_soft_release_error_keeps_remaining_claim
        strict_soft_release_preserves_unlink_and_directory_close_errors
        strict_soft_release_sentinel_close_failure strict_soft_rides_out_a_transient_non_sentinel
        strict_soft_sentinel_inspection_and_close_failure_group
        strict_soft_sentinel_remains_after_private_cleanup_failure
        strict_soft_sentinel_removed_after_publication_backs_off
        strict_soft_sentinel_vanishing_before_open_is_republished
        strict_soft_structurally_invalid_record_fails_closed""",
    "test_strict_soft_paths": """
        async_strict_soft_relative_release_uses_acquisition_directory
        async_strict_soft_waiter_keeps_acquisition_directory
        strict_soft_relative_release_uses_acquisition_directory
        strict_soft_release_uses_original_symlink_parent
        strict_soft_waiter_keeps_acquisition_directory""",
    "test_strict_soft_races": """
        strict_soft_lower_intent_delayed_until_higher_enters
        strict_soft_lower_intent_delayed_until_higher_selects
        strict_soft_private_partial_record_is_not_a_claim
        strict_soft_shared_instance_transition_respects_admission
        strict_soft_shared_instance_waits_for_failed_doorway""",
    "test_strict_soft_recovery": """
        strict_soft_reclaims_crash_after_private_publication
        strict_soft_reclaims_crash_before_private_publication
        strict_soft_recovers_every_claim_for_crashed_token""",
    "test_strict_soft_stress": """
        strict_soft_eight_process_contention_has_no_overlap""",
}


def is_known(name, version):
    """Whether a test "tests.MODULE.test_NAME[PARAMETERS]" of a version is one of them."""
    base, bracket, parameters = name.partition("[")
    module, _, test = base.removeprefix("tests.").rpartition(".")
    test = test.removeprefix("test_")
    known = " ".join(table.get(module, "") for table in (MODE, RENAME, LINK)).split()
    major = version.partition(".")[0]
    return any(one in known for one in (test, test + bracket + parameters, f"{test}@{major}"))
