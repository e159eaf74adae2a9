// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names behind [`super::helpers`], as words in strings: one word is one entry.

pub const EXACT: &str = "
    lock_sock lock_sock_nested lock_sock_fast release_sock
    simple_copy_to_iter ldsem_down_read ldsem_down_write ldsem_up_read
    ifs_free truncate_cleanup_folio folio_invalidate
    iput iput_final ihold dput fast_dput drop_nlink ida_free crc_itu_t cleanup_srcu_struct get_taint find_lock_entries
    truncate_inode_pages_range rhashtable_lookup lock_timer_base sk_stop_timer_sync mod_timer insert_work queue_delayed_work
    queue_delayed_work_on queue_work queue_work_node arch_stack_walk stack_trace_consume_entry va_format devres_release_all
    find_or_create_page do_read_cache_folio read_cache_page pagecache_get_page grab_cache_page_write_begin
    filemap_get_folio filemap_alloc_folio folio_unlock copyin copyout assertfail owner_on_cpu bad_stack handle_bad_stack
    lock_page unlock_page readq writeq free_large_kmalloc kfree_sensitive phys_addr print_tainted print_unlock_imbalance_bug
    lock_downgrade el1h_64_sync el1h_64_sync_handler do_tag_check_fault do_tag_recovery report_tag_fault rust_begin_unwind
    panic vpanic nmi_panic die die_kernel_fault die_addr oops_end oops_begin oops_exit
    bust_spinlocks report_bug report_bug_entry fixup_bug handle_bug bug_handler call_break_hook
    brk_handler bug_brk_handler kasan_brk_handler ubsan_brk_handler early_brk64
    do_debug_exception do_el1_brk64 el1_brk64 el1_dbg do_trap do_error_trap do_invalid_op
    invalid_op do_divide_error do_general_protection general_protection do_int3 page_fault
    do_page_fault do_user_addr_fault do_kern_addr_fault bad_area bad_area_nosemaphore
    bad_area_access_error no_context page_fault_oops kernelmode_fixup_or_oops
    do_translation_fault do_mem_abort do_bad_area do_kernel_fault die_if_kernel unwind_backtrace
    show_stack show_regs dump_backtrace walk_stackframe show_stack_log_lvl show_trace_log_lvl
    print_report end_report start_report print_address_description object_err slab_err slab_bug
    print_trailer print_page_info check_bytes_and_report check_object check_slab on_freelist
    free_debug_processing alloc_debug_processing slab_fix slab_pad_check free_to_partial_list
    alloc_consistency_checks free_consistency_checks bad_page free_pages_check_bad
    check_new_page_bad free_page_is_bad_report print_bad_pte print_bad_page_map bad_page_state
    nmi_cpu_backtrace error_entry check_memory_region check_preemption_disabled debug_smp_processor_id read_word_at_a_time load_unaligned_zeropad
    check_noncircular check_prev_add check_prevs_add validate_chain check_deadlock mark_lock
    mark_lock_irq mark_held_locks mark_usage check_usage check_irq_usage check_usage_forwards
    check_usage_backwards print_circular_bug print_circular_bug_header print_deadlock_bug
    print_usage_bug valid_state print_irq_inversion_bug print_irqtrace_events
    print_bad_irq_dependency print_unlock_imbalance_bug print_freed_lock_bug
    print_lock_invalid_wait_context check_wait_context register_lock_class assign_lock_key
    look_up_lock_class reacquire_held_locks trace_hardirqs_on trace_hardirqs_off
    trace_hardirqs_on_caller trace_hardirqs_off_caller trace_irq_enable_rcuidle
    suspicious_rcu_usage ubsan_epilogue ubsan_prologue val_to_string handle_overflow
    timer_is_static_object work_is_static_object program_check_exception program_check_common
    stack_chk_fail fortify_panic fortify_report check_panic_on_warn hex_dump_to_buffer memcpy
    memcmp memset memchr memmove memscan memchr_inv memcpy_orig memcpy_erms memset_erms
    memset_orig memmove_erms memcpy_fromio memcpy_toio memset_io memzero_explicit memdup_user
    vmemdup_user bcmp strcmp strncmp strcasecmp strncasecmp strcpy strlcpy strncpy strscpy
    sized_strscpy strscpy_pad strlcat strncat strcat strlen strnlen strchr strrchr strnchr strstr
    strnstr strsep strpbrk strspn strcspn skip_spaces sysfs_streq string string_nocheck pointer
    number format_decode clear_page_erms clear_page_rep clear_page_orig copy_page
    crc32c_pcl_intel_update kstrdup kstrdup_const kstrndup kmemdup kmemdup_nul kmemdup_noprof
    kmemdup_array kvmemdup down down_interruptible down_killable down_trylock down_timeout up
    schedule preempt_schedule preempt_schedule_common preempt_schedule_irq
    preempt_schedule_notrace schedule_timeout schedule_preempt_disabled io_schedule
    io_schedule_timeout context_switch complete complete_all swake_up_locked finish_wait
    try_to_wake_up ttwu_queue wake_up_process cond_resched swake_up_one kthread_stop del_timer
    del_timer_sync timer_delete timer_delete_sync timer_shutdown_sync try_to_del_timer_sync
    try_to_grab_pending flush_work flush_workqueue drain_workqueue destroy_workqueue
    cancel_work_sync cancel_work_timer cancel_delayed_work cancel_delayed_work_sync queue_work_on
    start_flush_work rb_insert_color rb_erase rb_next rb_first klist_put klist_del add_uevent_var
    get_device_parent put_device get_device device_add device_del device_unregister
    device_destroy device_release device_for_each_child device_remove_file hwrng_unregister
    i2c_del_adapter unregister_client tty_unregister_device rollback_registered
    rollback_registered_many dummy_urb_enqueue usb_kill_urb usb_kill_anchored_urbs
    usb_control_msg usb_hcd_submit_urb usb_submit_urb usb_start_wait_urb sysfs_remove_group
    sysfs_remove_groups sysfs_remove_file_ns sysfs_remove_dir sysfs_remove_link skb_panic
    skb_over_panic skb_under_panic sk_skb_reason_drop kfree_skb kfree_skb_reason
    kfree_skb_list_reason set_bit clear_bit test_bit test_and_set_bit test_and_clear_bit
    find_next_bit find_first_bit readb readw readl writeb writew writel inb outb inw outw inl
    outl sanitizer_cov_trace_pc sanitizer_cov_trace_const_cmp4 fentry mcount ftrace_stub
    ftrace_call ftrace_caller perf_trace_lock perf_trace_lock_acquire kcov_remote_start
    stack_trace_save save_stack save_stack_trace ret_from_fork ret_from_fork_asm
    ret_from_exception ret_from_intr ret_from_kernel_thread ret_to_kernel_thread common_interrupt
    do_IRQ apic_timer_interrupt smp_apic_timer_interrupt irq_exit irq_exit_rcu invoke_softirq
    do_softirq call_timer_fn expire_timers run_timers run_timer_softirq 
    run_timer_base irq_svc dabt_svc entry_INT80_32 entry_INT80_compat ret_fast_syscall vectors
    handle_exception work_pending system_call_common interrupt_entry local_apic_timer_interrupt
    hrtimer_interrupt hrtimer_run_queues run_hrtimer kthread smpboot_thread_fn do_fast_syscall_32
    do_int80_syscall_32 x64_sys_call ia32_sys_call sysenter_dispatch tracesys_phase2 el0_svc
    el0_svc_common el0_sync el1_sync el1_irq el1_abort el1_da spl_panic spl_dumpstack
    show_state_filter sched_show_task show_mem show_free_areas show_all_workqueues show_workqueue_state compound_head
    check_new_pages check_new_page";

pub const PREFIX: &str = "
    rcu_read_lock rcu_read_unlock rcu_lock_acquire rcu_lock_release rcu_is_watching srcu_read_
    cfi_check cfi_slowpath memcpy_ memset_ memmove_ memcmp_ copy_page_ crc16 crc32 crc64 rb_ klist_ xas_start xas_load xas_find local_bh_enable local_bh_disable alloc_page alloc_frozen_pages
    folio_alloc logic_in logic_out extract_user_to_sg extract_iter_to_sg print_hex_dump copy_to_iter copy_from_iter copy_page_to_iter
    copy_page_from_iter copy_folio_to_iter trace_hardirq trace_softirq lockdep_ mark_lock mark_held imbalance_bug walk_stack dump_backtrace
    warn_bogus set_bit clear_bit change_bit test_bit
    dump_stack warn_slowpath warn_alloc warn_printk warn_thunk print_unreferenced debug_object
    debug_check_no_obj lock_acquire lock_release lock_class lock_is_held lock_downgrade
    lock_contended lock_acquired lock_pin lock_unpin raw_spin_ spin_lock spin_unlock spin_trylock
    do_raw_ queued_spin queued_read queued_write native_queued pv_queued pv_wait kvm_wait
    raw_read_ raw_write_ read_lock read_unlock write_lock write_unlock bit_spin_ spin_bug
    spin_dump rwlock_bug debug_spin rt_spin_ rt_read_ rt_write_ rtlock_ rt_mutex rtmutex mutex_
    ww_mutex rwsem_ down_read down_write up_read up_write percpu_down_ percpu_up_ percpu_rwsem
    osq_ mcs_spin refcount_ kref_ rcuref_ ref_tracker_ atomic_ atomic64_ atomic_long_ arch_atomic
    raw_atomic instrument_ hlist_add hlist_del list_add list_del list_replace list_move list_splice might_sleep
    might_fault might_resched cant_sleep cant_migrate copy_to_user copy_from_user
    copy_in_user copy_user_ raw_copy_ arch_copy_ rep_movs rep_stos asm_copy_to asm_copy_from
    put_user get_user_ get_user_nocheck strncpy_from_user strnlen_user clear_user kprobe_
    x86_indirect_thunk x86_return_thunk bad_page report_ asm_exc_ exc_ asm_sysvec_ sysvec_
    asm_common_interrupt irqentry_ entry_SYSCALL entry_SYSENTER do_syscall_ el0t_ el1h_ el0_svc
    invoke_syscall el1_ ubsan_ rust_helper_ should_fail fault_create should_failslab fault_in_ dev_printk dev_info dev_notice dev_warn dev_err
    dev_alert dev_crit dev_emerg wake_up wait_for_completion wait_for_common do_wait_for_common
    prepare_to_wait kobject_ stack_depot flush_delayed call_rcu sysfs_remove unregister_netdev
    mod_objcg_ trace_event_raw perf_trace_ bpf_trace_run traceiter_ kfence_ check_region";

pub const CONTAINS: &str = "
    sysfs_remove rollback_registered unregister_netdev
    rust_begin_unwind panic_fmt panicking preempt_schedule lock_acquire lock_release
    copy_to_user copy_from_user copy_to_iter copy_from_iter copy_page_to_iter put_user get_user
    check_heap_object bh_enable bh_disable spin_lock spin_unlock spin_trylock alloc_page check_object _set_bit _clear_bit _test_bit raw_spin_rq
    kasan kmsan kcsan asan_ msan_ tsan_ sanitizer lockdep printk snprintf scnprintf kasprintf
    indirect_thunk seqcount";

/// Allocators: `kmalloc` and what it is made of.
pub const ALLOCATOR: &str = "
    kmalloc kzalloc kcalloc krealloc kvmalloc kvzalloc kvrealloc kmem_cache_ kfree kvfree vfree
    vunmap vmalloc vzalloc slab_ do_slab_ do_kmalloc do_kmem_cache cache_free cache_alloc
    cache_grow qlist_free quarantine_ get_freepointer memcg_slab_ memcg_alloc_abort
    alloc_from_pcs alloc_from_new_slab new_slab allocate_slab get_partial free_slab discard_slab
    deactivate_slab flush_cpu_slab put_cpu_partial unfreeze_partials set_freepointer setup_object
    bulk_free build_detached_freelist freelist_";

/// Glue between an entry into the kernel and the code that serves it: if a stack has nothing but
/// helpers and glue, there is no guilty function.
pub const ANCHORS: &str = "
    irq_work_single
    process_scheduled_works
    process_one_work do_syscall_ do_fast_syscall_ sysenter_dispatch tracesys_phase2 el0_svc
    invoke_syscall ret_fast_syscall x64_sys_call do_int80 netif_receive_skb do_softirq
    handle_softirqs call_timer_fn _run_timers run_timer_softirq run_timer_base hrtimer_run
    run_ksoftirqd smpboot_thread_fn start_secondary cpu_startup_entry ret_from_fork vfs_write
    vfs_read vfs_iter_read vfs_iter_write do_iter_read do_iter_write call_read_iter
    call_write_iter new_sync_read new_sync_write vfs_ioctl ksys_ioctl compat_ioctl
    compat_sys_ioctl blkdev_driver_ioctl blkdev_ioctl mmap_region do_mmap do_dentry_open vfs_open
    kernel_setsockopt sock_common_setsockopt do_sock_setsockopt kernel_listen sk_common_release
    kernel_accept __do_fault do_page_fault __fput task_work_run exit_to_usermode
    smp_call_function tasklet_action tasklet_hi_action do_one_initcall io_wq_worker";

pub const ANCHOR_STARTS: &str = "
    call_mmap sock_sendmsg __sock_sendmsg sock_recvmsg sock_release __sock_release sock_mmap
    sock_do_ioctl sock_ioctl compat_sock_ioctl nfnetlink_rcv_msg rtnetlink_rcv_msg netlink_dump
    socketpair connect ioctl sys_socketpair sys_connect sys_ioctl";

/// What the system call macros put before a call's name. The longest that fits is stripped.
pub const SYSCALL: &str = "
    SYSC_ SyS_ sys_ __x64_ __ia32_ __arm64_ __riscv_ __s390x_ ____sys_ ___sys_ __sys_ __se_ __se_sys_ __do_sys_
    compat_SYSC_ compat_SyS_ ksys_";

/// File operations that only pass a read or write on to the code behind a file in /proc, /sys or
/// debugfs.
pub const DISPATCH: &str = "
    proc_reg_write proc_reg_read proc_reg_read_iter proc_reg_unlocked_ioctl full_proxy_write
    full_proxy_read full_proxy_unlocked_ioctl kernfs_fop_write kernfs_fop_write_iter
    kernfs_fop_read_iter sysfs_kf_write dev_attr_store kobj_attr_store drv_attr_store
    simple_attr_write simple_attr_write_xsigned debugfs_attr_write debugfs_attr_write_xsigned
    proc_sys_write proc_sys_call_handler param_attr_store module_attr_store seq_read
    seq_read_iter kernfs_seq_show sysfs_kf_seq_show dev_attr_show configfs_write_iter
    configfs_write_file";

/// Parts of names that mark waiting in the stack of a hung task.
pub const HUNG: &str = "
    sched _lock _slowlock down rwsem completion kthread wait synchronize context_switch rt_mutex
    __switch_to cancel_delayed_work rcu_barrier bit_wait __bio_wait __flush_work flush_work
    refrigerator __mutex ktime_get wake_function wake_atomic_t wake_bit";
