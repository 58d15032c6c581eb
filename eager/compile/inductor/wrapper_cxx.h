/*
 * eager/compile/inductor/wrapper_cxx: replacements for functions of the C++ runtime, which a library without exceptions does
 * not load. The linker gives these functions the runtime's names (eager/compile/inductor/build.py, INSTEAD_OF_CXX).
 *
 * Part of wrapper.h, after the code that leaves a run.
 */
/*
 * Every kernel refers to functions that unwind and print, but kernels that are linked this way do not need them: no exception
 * passes here, and nothing is printed.
 */
extern "C" __attribute__((visibility("hidden"), used)) int aoticache_kernel_without_cxx(void)
{
    return 8; /* _URC_CONTINUE_UNWIND */
}

/* Called if memory for a kernel's own arrays and vectors (sums of sums, in reductions) cannot be allocated. */
extern "C" [[noreturn]] __attribute__((visibility("hidden"), used)) AOTICACHE_COLD void aoticache_kernel_out_of_memory(
    void)
{
    torch::aot_inductor::leave_run("out of memory");
}
extern "C" [[noreturn]] __attribute__((visibility("hidden"), used)) AOTICACHE_COLD void aoticache_kernel_too_long(
    const char *message)
{
    torch::aot_inductor::leave_run(message);
}
extern "C" [[noreturn]] __attribute__((visibility("hidden"), used)) AOTICACHE_COLD void aoticache_kernel_terminate(void)
{
    abort();
}
extern "C" __attribute__((visibility("hidden"), used)) void *aoticache_kernel_new(size_t bytes)
{
    void *memory = malloc(bytes > 0 ? bytes : 1);
    if (memory == nullptr)
        aoticache_kernel_out_of_memory();
    return memory;
}
extern "C" __attribute__((visibility("hidden"), used)) void *aoticache_kernel_new_aligned(size_t bytes,
                                                                                          size_t alignment)
{
    void *memory;
    if (posix_memalign(&memory, alignment, bytes > 0 ? bytes : 1) != 0)
        aoticache_kernel_out_of_memory();
    return memory;
}
extern "C" __attribute__((visibility("hidden"), used)) void aoticache_kernel_delete(void *memory)
{
    free(memory);
}
extern "C" __attribute__((visibility("hidden"), used)) int aoticache_kernel_guard_acquire(uint8_t *guard)
{
    pthread_mutex_lock(&torch::aot_inductor::guards_mutex);
    torch::aot_inductor::guards_held++;
    if (*guard == 0)
        return 1;
    torch::aot_inductor::release_guards(1);
    return 0;
}
extern "C" __attribute__((visibility("hidden"), used)) void aoticache_kernel_guard_release(uint8_t *guard)
{
    __atomic_store_n(guard, 1, __ATOMIC_RELEASE);
    torch::aot_inductor::release_guards(1);
}
