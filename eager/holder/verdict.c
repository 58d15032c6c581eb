/*
 * eager/holder/verdict: trials, which find out whether a kernel or the fallback is faster. While a kernel is on trial its
 * published runner pointer is NULL, so calls take the slow path, which decides whether the kernel or the fallback runs
 * (judge.h). During a turn of the kernel the pointer is set, so a whole hit is timed, on the path of hits. During a turn of
 * the fallback only the fallback is timed: the cost of the call without a cache. The result is stored in the cache, and new
 * processes start with it.
 *
 * The hit path only checks, once every AOTICACHE_VERDICT_LOOKS calls, whether the result has expired.
 */
#include "base/clock.h"
#include "base/cleanup.h"
#include "cache/eager_face.h"
#include "eager/holder/holder_hot.h"

#include <sched.h>
#include <stdlib.h>

/* ---- which verdict ---- */

aoticache_verdict *aoticache_known_kernel_verdict(aoticache_known_kernel *known, uint64_t elements)
{
    return &known->verdicts[known->verdict_count > 1 ? aoticache_size_class(elements) : 0];
}

uint64_t aoticache_count_elements(const aoticache_value *arguments, size_t count)
{
    uint64_t elements = 0;
    for (size_t i = 0; i < count; i++) {
        const aoticache_value *value = &arguments[i];
        if (value->kind == AOTICACHE_VALUE_TENSOR && value->as.tensor != NULL)
            elements += (uint64_t)value->as.tensor->numel;
        for (uint32_t k = 0; value->kind == AOTICACHE_VALUE_TENSOR_LIST && k < value->count; k++)
            elements += value->as.tensors[k] != NULL ? (uint64_t)value->as.tensors[k]->numel : 0;
    }
    return elements;
}

/* ---- validity of results: for this number of threads, and for a limited time ---- */

/* Returns the number of threads, rounded up to a power of two: a kernel that is faster with seven threads is faster with eight. */
static uint32_t threads_now(const aoticache_holder *holder)
{
    uint32_t threads = 0, rounded = 1;
    if (holder->num_threads != NULL) {
        threads = holder->num_threads(holder->num_threads_user);
    } else {
        cpu_set_t processors;
        if (sched_getaffinity(0, sizeof processors, &processors) == 0)
            threads = (uint32_t)CPU_COUNT(&processors);
    }
    while (rounded < threads && rounded < 1u << 30)
        rounded *= 2;
    return rounded;
}

static bool is_fresh(int64_t judged_ns)
{
    int64_t age_ns = aoticache_wall_ns() - judged_ns;
    return age_ns >= 0 && age_ns < AOTICACHE_VERDICT_KEEPS_NS;
}

/* ---- states, under context->lock ---- */

void aoticache_verdict_show(aoticache_verdict *verdict)
{
    const aoticache_holder *holder = verdict->known->holder;
    bool answers = !holder->judges || verdict->shown > 0 || atomic_load(&verdict->state) == AOTICACHE_VERDICT_FASTER;
    atomic_store(&verdict->hot->runner, answers ? atomic_load(&verdict->known->runner) : NULL);
}

/* Changes the state, if it is `from`. Returns whether it was. */
static bool change_state(aoticache_verdict *verdict, aoticache_verdict_state from, aoticache_verdict_state to)
{
    aoticache_context *context = verdict->known->holder->context;
    aoticache_holder *holder = verdict->known->holder;
    pthread_mutex_lock(&context->lock);
    bool changes = atomic_load(&verdict->state) == (int)from;
    if (changes) {
        atomic_store(&verdict->state, (int)to);
        aoticache_verdict_show(verdict);
        if (to == AOTICACHE_VERDICT_TRIAL)
            atomic_fetch_add_explicit(&holder->trials, 1, memory_order_relaxed);
        if (from == AOTICACHE_VERDICT_TRIAL)
            atomic_fetch_sub_explicit(&holder->trials, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&context->lock);
    return changes;
}

/* ---- results in the cache ---- */

/* The newest timing result for this machine, number of threads and size class. */
typedef struct known_judgement {
    uint32_t threads, size_class;
    bool is_known, is_slower;
    uint64_t kernel_ns, fallback_ns;
    int64_t judged_ns;
} known_judgement;

static bool copy_judgement(void *user, const aoticache_judgement *judgement)
{
    known_judgement *known = user;
    if (judgement->threads != known->threads || judgement->size_class != known->size_class ||
        !judgement->is_this_machine)
        return true;
    known->is_known = true;
    known->is_slower = judgement->is_slower;
    known->kernel_ns = judgement->kernel_ns;
    known->fallback_ns = judgement->fallback_ns;
    known->judged_ns = judgement->judged_ns;
    return false;
}

/* Reads the timing result. If it cannot be read, it is measured again. */
static known_judgement read_judgement(const aoticache_holder *holder, const aoticache_key *key, uint32_t threads,
                                      uint32_t size_class)
{
    known_judgement known = {.threads = threads, .size_class = size_class};
    aoticache_cache_list_judgements(holder->context->cache, key, copy_judgement, &known, NULL);
    return known;
}

bool aoticache_holder_was_slower(const aoticache_holder *holder, const aoticache_request *request)
{
    aoticache_key key;
    if (!holder->judges || aoticache_request_key(request, &key, NULL) != AOTICACHE_OK)
        return false;
    known_judgement known = read_judgement(holder, &key, threads_now(holder), 0);
    return known.is_known && known.is_slower;
}

/* Maximum number of new timing results that are collected and stored together; they then count as saved. */
#define SAVED_AT_ONCE 32

static size_t collect_unsaved(aoticache_holder *holder, aoticache_verdict **verdicts, aoticache_judgement *judgements)
{
    size_t count = 0;
    pthread_mutex_lock(&holder->lock);
    for (aoticache_known_kernel *known = holder->known_kernels; known != NULL; known = known->next)
        for (uint32_t i = 0; i < known->verdict_count && count < SAVED_AT_ONCE; i++) {
            aoticache_verdict *verdict = &known->verdicts[i];
            if (!verdict->is_unsaved)
                continue;
            verdict->is_unsaved = false;
            verdicts[count] = verdict;
            judgements[count++] = (aoticache_judgement){.key = known->key,
                                                        .machine = aoticache_machine_name(),
                                                        .threads = atomic_load(&verdict->threads),
                                                        .size_class = verdict->size_class,
                                                        .is_slower = verdict->was_slower,
                                                        .kernel_ns = verdict->kernel_ns,
                                                        .fallback_ns = verdict->fallback_ns,
                                                        .judged_ns = atomic_load(&verdict->judged_ns)};
        }
    pthread_mutex_unlock(&holder->lock);
    return count;
}

void aoticache_holder_save_judgements(aoticache_holder *holder)
{
    aoticache_verdict *verdicts[SAVED_AT_ONCE];
    aoticache_judgement judgements[SAVED_AT_ONCE];
    size_t count = SAVED_AT_ONCE;
    while (holder->judges && count == SAVED_AT_ONCE) {
        count = collect_unsaved(holder, verdicts, judgements);
        if (count == 0 ||
            aoticache_cache_put_judgements(holder->context->cache, judgements, count, NULL) != AOTICACHE_LOCKED)
            continue;
        /* Other processes are writing: the next flush tries again. A read-only cache never stores them. */
        pthread_mutex_lock(&holder->lock);
        for (size_t i = 0; i < count; i++)
            verdicts[i]->is_unsaved = true;
        pthread_mutex_unlock(&holder->lock);
        break;
    }
}

/* ---- state transitions ---- */

/* Begins a trial. False: no memory, and the kernel answers without a trial. The caller holds holder->lock. */
static bool begin_trial(aoticache_verdict *verdict)
{
    if (verdict->trial == NULL && (verdict->trial = malloc(sizeof *verdict->trial)) == NULL)
        return false;
    *verdict->trial = (aoticache_trial){.given = {0}};
    verdict->trial_number++;
    return true;
}

static void settle_open(aoticache_verdict *verdict)
{
    aoticache_holder *holder = verdict->known->holder;
    uint32_t threads = threads_now(holder);
    known_judgement known = read_judgement(holder, &verdict->known->key, threads, verdict->size_class);
    aoticache_verdict_state next = AOTICACHE_VERDICT_TRIAL;
    if (known.is_known && is_fresh(known.judged_ns))
        next = known.is_slower ? AOTICACHE_VERDICT_SLOWER : AOTICACHE_VERDICT_FASTER;
    pthread_mutex_lock(&holder->lock);
    if (atomic_load(&verdict->state) == AOTICACHE_VERDICT_OPEN) {
        atomic_store(&verdict->threads, threads);
        if (next == AOTICACHE_VERDICT_TRIAL && !begin_trial(verdict))
            next = AOTICACHE_VERDICT_FASTER;
        verdict->kernel_ns = known.kernel_ns;
        verdict->fallback_ns = known.fallback_ns;
        atomic_store(&verdict->judged_ns, known.is_known ? known.judged_ns : aoticache_wall_ns());
        change_state(verdict, AOTICACHE_VERDICT_OPEN, next);
    }
    pthread_mutex_unlock(&holder->lock);
}

aoticache_verdict_state aoticache_verdict_settle(aoticache_verdict *verdict)
{
    int state = atomic_load(&verdict->state);
    if (state == AOTICACHE_VERDICT_OPEN) {
        settle_open(verdict);
        state = atomic_load(&verdict->state);
    }
    return (aoticache_verdict_state)state;
}

void aoticache_verdict_look_again(const aoticache_holder *holder, const aoticache_known_kernel_hot *hot)
{
    aoticache_verdict *verdict = hot->detail;
    if (!holder->judges || verdict == NULL)
        return;
    int state = atomic_load(&verdict->state);
    if (state != AOTICACHE_VERDICT_FASTER && state != AOTICACHE_VERDICT_SLOWER)
        return;
    if (is_fresh(atomic_load(&verdict->judged_ns)) && threads_now(holder) == atomic_load(&verdict->threads))
        return;
    change_state(verdict, (aoticache_verdict_state)state, AOTICACHE_VERDICT_OPEN);
}

/* ---- calls ---- */

aoticache_verdict *aoticache_holder_find_trial(const aoticache_holder *holder, const aoticache_packed *packed)
{
    if (!holder->judges || (packed->requires_grad && !holder->serve_requires_grad))
        return NULL;
    const aoticache_table_entry *entry = aoticache_table_find(&holder->table, packed);
    aoticache_verdict *verdict = entry != NULL ? atomic_load(&entry->known)->detail : NULL;
    bool is_on_trial = verdict != NULL && atomic_load(&verdict->state) == AOTICACHE_VERDICT_TRIAL &&
                       atomic_load(&verdict->known->runner) != NULL;
    return is_on_trial ? verdict : NULL;
}

static void show_for_turn(aoticache_verdict *verdict, int by)
{
    aoticache_context *context = verdict->known->holder->context;
    pthread_mutex_lock(&context->lock);
    verdict->shown += (uint32_t)by;
    aoticache_verdict_show(verdict);
    pthread_mutex_unlock(&context->lock);
}

bool aoticache_timed_call_begin(aoticache_timed_call *timed, aoticache_verdict *verdict)
{
    aoticache_holder *holder = verdict->known->holder;
    pthread_mutex_lock(&holder->lock);
    bool is_on_trial = atomic_load(&verdict->state) == AOTICACHE_VERDICT_TRIAL;
    if (is_on_trial) {
        timed->verdict = verdict;
        timed->serial = holder->serial;
        timed->trial_number = verdict->trial_number;
        timed->contender = aoticache_trial_turn(verdict->trial);
        if (timed->contender == AOTICACHE_CONTENDER_KERNEL)
            show_for_turn(verdict, 1);
    }
    pthread_mutex_unlock(&holder->lock);
    return is_on_trial;
}

/* Notes the time of a turn. True: the trial has ended. The caller holds holder->lock. */
static bool note_time(aoticache_verdict *verdict, aoticache_contender way, uint64_t ns)
{
    aoticache_trial *trial = verdict->trial;
    aoticache_trial_note(trial, way, ns);
    aoticache_finding finding = aoticache_trial_find(trial);
    if (finding == AOTICACHE_FINDING_NONE)
        return false;
    verdict->kernel_ns = aoticache_trial_median(trial, AOTICACHE_CONTENDER_KERNEL);
    verdict->fallback_ns = aoticache_trial_median(trial, AOTICACHE_CONTENDER_FALLBACK);
    verdict->was_slower = finding == AOTICACHE_FINDING_SLOWER;
    verdict->is_unsaved = true;
    atomic_store(&verdict->judged_ns, aoticache_wall_ns());
    return change_state(verdict, AOTICACHE_VERDICT_TRIAL,
                        finding == AOTICACHE_FINDING_FASTER ? AOTICACHE_VERDICT_FASTER : AOTICACHE_VERDICT_SLOWER);
}

void aoticache_timed_call_end(aoticache_timed_call *timed, aoticache_holder *holder, uint64_t ns)
{
    aoticache_verdict *verdict = timed->verdict;
    bool is_over = false;
    if (verdict == NULL || timed->serial != holder->serial)
        return;
    pthread_mutex_lock(&holder->lock);
    if (timed->contender == AOTICACHE_CONTENDER_KERNEL)
        show_for_turn(verdict, -1);
    if (ns > 0 && verdict->trial_number == timed->trial_number &&
        atomic_load(&verdict->state) == AOTICACHE_VERDICT_TRIAL)
        is_over = note_time(verdict, timed->contender, ns);
    pthread_mutex_unlock(&holder->lock);
    timed->verdict = NULL;
    if (is_over)
        aoticache_holder_save_judgements(holder);
}

bool aoticache_holder_prefers_fallback(const aoticache_holder *holder, const aoticache_packed *packed)
{
    if (!holder->judges || (packed->requires_grad && !holder->serve_requires_grad))
        return false;
    const aoticache_table_entry *entry = aoticache_table_find(&holder->table, packed);
    if (entry == NULL)
        return false;
    const aoticache_known_kernel_hot *hot = atomic_load(&entry->known);
    const aoticache_verdict *verdict = hot->detail;
    if (atomic_load(&verdict->state) != AOTICACHE_VERDICT_SLOWER)
        return false;
    uint64_t lost = aoticache_call_counts_note(holder->lost);
    if (__builtin_expect((lost & (AOTICACHE_VERDICT_LOOKS - 1)) == 0, 0))
        aoticache_verdict_look_again(holder, hot);
    return true;
}
