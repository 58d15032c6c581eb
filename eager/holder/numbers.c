/*
 * eager/holder/numbers: numbers that differ from call to call, as the step size of an optimizer does. The numbers of a call
 * are compiled into its library, so that each would need one of its own. Where an argument has had several values, one
 * library serves them all: it takes the number as a tensor of no dimension, and reads it when it runs.
 *
 * While the holder works on a call, such a tensor is substituted to its arguments in the number's place. All that follows from
 * there, packing, requests, inputs, knows tensors.
 */
#include "eager/holder/internal.h"
#include "eager/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An argument's values that are compiled in; with the next one it is substituted. */
#define VALUES_COMPILED_IN 2
/*
 * PyTorch refuses numbers that the dtype of the tensors cannot have. Half precision can have these, and all others more, so
 * that nothing of what it refuses is substituted.
 */
#define MOST_SUBSTITUTED 65504.0

/* What is known of one argument. Under holder->lock. */
struct aoticache_number {
    double seen[VALUES_COMPILED_IN];
    uint32_t count; /* of seen */
    bool is_fixed;  /* a library that takes it as a tensor could not be made: it is not substituted again */
};

static bool is_number(const aoticache_holder *holder, size_t argument)
{
    const aoticache_schema_argument *said = aoticache_schema_argument_at(holder->schema, argument);
    const aoticache_type *type = said->type->kind == AOTICACHE_TYPE_OPTIONAL ? said->type->elements[0] : said->type;
    return argument < 64 && (type->kind == AOTICACHE_TYPE_NUMBER || type->kind == AOTICACHE_TYPE_FLOAT);
}

/* PyTorch takes roots and products for some exponents: of -inf and -0 they give something else than a power does. */
static bool may_be_substituted(const aoticache_holder *holder, size_t argument)
{
    return is_number(holder, argument) &&
           strcmp(aoticache_schema_argument_at(holder->schema, argument)->name, "exponent") != 0;
}

/* Times 0 is another matter too: beta=0 of a product of matrices means that NaN is not taken over. */
static bool can_be_substituted(const aoticache_value *value)
{
    return value->kind == AOTICACHE_VALUE_DOUBLE && value->as.double_value != 0 &&
           fabs(value->as.double_value) <= MOST_SUBSTITUTED; /* false for NaN */
}

bool aoticache_holder_is_floating(int32_t dtype)
{
    return dtype == AOTICACHE_DTYPE_FLOAT32 || dtype == AOTICACHE_DTYPE_BFLOAT16 || dtype == AOTICACHE_DTYPE_FLOAT16 ||
           dtype == AOTICACHE_DTYPE_FLOAT64;
}

/*
 * With tensors of integers a number decides the dtype of the results, and PyTorch's compiler forgets that of one it does not
 * know. It leaves complex tensors to PyTorch's own kernels.
 */
static bool has_floats_alone(const aoticache_holder *holder, const aoticache_value *arguments)
{
    for (size_t i = 0; i < holder->num_arguments; i++) {
        const aoticache_value *value = &arguments[i];
        if (value->kind == AOTICACHE_VALUE_TENSOR && !aoticache_holder_is_floating(value->as.tensor->dtype))
            return false;
        for (uint32_t k = 0; value->kind == AOTICACHE_VALUE_TENSOR_LIST && k < value->count; k++)
            if (value->as.tensors[k] != NULL && !aoticache_holder_is_floating(value->as.tensors[k]->dtype))
                return false;
    }
    return true;
}

/* What is substituted is known by its sizes, which are these. */
static const int64_t no_sizes[1];

bool aoticache_number_is_substituted(const aoticache_value *value)
{
    return value->kind == AOTICACHE_VALUE_TENSOR && value->as.tensor != NULL && value->as.tensor->sizes == no_sizes;
}

uint64_t aoticache_numbers_substituted(const aoticache_holder *holder, const aoticache_value *arguments)
{
    uint64_t substituted = 0;
    for (size_t i = 0; i < holder->num_arguments; i++)
        if (arguments[i].kind == AOTICACHE_VALUE_TENSOR && is_number(holder, i))
            substituted |= UINT64_C(1) << i;
    return substituted;
}

/* ---- which arguments ---- */

/* Under holder->lock. NULL without memory. */
static struct aoticache_number *number_at(aoticache_holder *holder, size_t argument)
{
    if (holder->numbers == NULL)
        holder->numbers = calloc(holder->num_arguments, sizeof *holder->numbers);
    return holder->numbers != NULL ? &holder->numbers[argument] : NULL;
}

/* True where it has had as many values as are compiled in, and this is another one. */
static bool is_one_more(struct aoticache_number *number, double value)
{
    for (uint32_t i = 0; i < number->count; i++)
        if (number->seen[i] == value)
            return false;
    if (number->count == VALUES_COMPILED_IN)
        return true;
    number->seen[number->count++] = value;
    return false;
}

/* The arguments that are substituted from now on, as a call or a library of these shows. Under holder->lock. */
static uint64_t note_values(aoticache_holder *holder, const aoticache_value *arguments)
{
    uint64_t substituted = 0;
    if (holder->device.type != AOTICACHE_DEVICE_TYPE_CPU || /* not tried on others */
        holder->dynamic == AOTICACHE_DYNAMIC_NEVER || !aoticache_hook_takes_numbers(holder->context->hook) ||
        !has_floats_alone(holder, arguments))
        return 0;
    for (size_t i = 0; i < holder->num_arguments; i++) {
        if (!can_be_substituted(&arguments[i]) || !may_be_substituted(holder, i))
            continue;
        struct aoticache_number *number = number_at(holder, i);
        if (number != NULL && !number->is_fixed && is_one_more(number, arguments[i].as.double_value))
            substituted |= UINT64_C(1) << i;
    }
    atomic_fetch_or(&holder->substitutable, substituted);
    return substituted;
}

bool aoticache_numbers_note(aoticache_holder *holder, const aoticache_value *arguments)
{
    pthread_mutex_lock(&holder->lock);
    const uint64_t substituted = note_values(holder, arguments);
    pthread_mutex_unlock(&holder->lock);
    return substituted != 0;
}

void aoticache_numbers_learn(aoticache_holder *holder, const aoticache_value *arguments)
{
    uint64_t substituted = aoticache_numbers_substituted(holder, arguments);
    for (size_t i = 0; substituted != 0 && i < holder->num_arguments; i++) {
        const struct aoticache_number *number = (substituted >> i & 1) != 0 ? number_at(holder, i) : NULL;
        if (number != NULL && number->is_fixed)
            substituted &= ~(UINT64_C(1) << i);
    }
    atomic_fetch_or(&holder->substitutable, substituted);
    note_values(holder, arguments);
}

void aoticache_numbers_give_up(aoticache_holder *holder, uint64_t substituted)
{
    if (substituted == 0)
        return;
    pthread_mutex_lock(&holder->lock);
    for (size_t i = 0; i < holder->num_arguments && i < 64; i++) {
        struct aoticache_number *number = (substituted >> i & 1) != 0 ? number_at(holder, i) : NULL;
        if (number != NULL)
            number->is_fixed = true;
    }
    atomic_fetch_and(&holder->substitutable, ~substituted);
    pthread_mutex_unlock(&holder->lock);
}

bool aoticache_numbers_were_given_up(const aoticache_holder *holder, const aoticache_numbers *numbers)
{
    return (numbers->arguments & ~atomic_load(&holder->substitutable)) != 0;
}

/* ---- lending ---- */

bool aoticache_numbers_substitute(const aoticache_holder *holder, aoticache_value *arguments,
                                  const aoticache_packed *packed, aoticache_numbers *ret_numbers)
{
    uint64_t substitutable = atomic_load_explicit(&holder->substitutable, memory_order_relaxed);
    if (substitutable == 0 || !has_floats_alone(holder, arguments) ||
        aoticache_table_find(&holder->table, packed) != NULL)
        return false;
    *ret_numbers = (aoticache_numbers){.count = 0};
    for (; substitutable != 0 && ret_numbers->count < AOTICACHE_NUMBERS_MOST; substitutable &= substitutable - 1) {
        const int argument = __builtin_ctzll(substitutable);
        aoticache_value *place = &arguments[argument];
        if (!can_be_substituted(place))
            continue;
        aoticache_substituted_number *substituted = &ret_numbers->substituted[ret_numbers->count++];
        ret_numbers->arguments |= UINT64_C(1) << argument;
        substituted->place = place;
        substituted->value = place->as.double_value;
        substituted->view = (aoticache_tensor_view){.dtype = AOTICACHE_DTYPE_FLOAT64,
                                                    .device = AOTICACHE_DEVICE_CPU,
                                                    .layout = AOTICACHE_LAYOUT_STRIDED,
                                                    .sizes = no_sizes,
                                                    .strides = no_sizes};
        *place = (aoticache_value){.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = &substituted->view};
    }
    return ret_numbers->count > 0;
}

/* A tensor costs more to make than many a kernel runs. Each thread has some, for one call at a time. */
struct aoticache_own_numbers {
    bool is_taken;
    double values[AOTICACHE_NUMBERS_MOST];
    AtenTensorHandle tensors[AOTICACHE_NUMBERS_MOST]; /* of the values; NULL: not made yet */
};

static AtenTensorHandle make_tensor(double *value)
{
    AtenTensorHandle tensor = NULL;
    (void)aoticache_tensor_from_blob(value, AOTICACHE_DTYPE_FLOAT64, 0, NULL, NULL, &tensor, NULL);
    return tensor;
}

/* NULL where this thread has none that is free: a kernel's own call of an operator, or no memory. */
static struct aoticache_own_numbers *take_own(void)
{
    aoticache_epoch_slot *mine = aoticache_epoch_mine;
    if (mine->numbers == NULL)
        mine->numbers = calloc(1, sizeof *mine->numbers);
    if (mine->numbers == NULL || mine->numbers->is_taken)
        return NULL;
    mine->numbers->is_taken = true;
    return mine->numbers;
}

bool aoticache_numbers_make_tensors(aoticache_numbers *numbers, bool consume)
{
    struct aoticache_own_numbers *own = numbers->own = consume ? NULL : take_own();
    for (size_t i = 0; i < numbers->count; i++) {
        aoticache_substituted_number *substituted = &numbers->substituted[i];
        if (own == NULL) {
            substituted->view.handle = make_tensor(&substituted->value);
        } else {
            own->values[i] = substituted->value;
            if (own->tensors[i] == NULL)
                own->tensors[i] = make_tensor(&own->values[i]);
            substituted->view.handle = own->tensors[i];
        }
        if (substituted->view.handle == NULL)
            return false;
    }
    return true;
}

void aoticache_numbers_take_back(aoticache_numbers *numbers, bool consumed)
{
    for (size_t i = 0; i < numbers->count; i++) {
        aoticache_substituted_number *substituted = &numbers->substituted[i];
        if (numbers->own == NULL && !consumed)
            aoticache_tensor_free(substituted->view.handle);
        /* A call that was answered may have put a result there. */
        if (substituted->place->kind == AOTICACHE_VALUE_TENSOR && substituted->place->as.tensor == &substituted->view)
            *substituted->place =
                (aoticache_value){.kind = AOTICACHE_VALUE_DOUBLE, .as.double_value = substituted->value};
    }
    if (numbers->own != NULL)
        numbers->own->is_taken = false;
    numbers->own = NULL;
    numbers->count = 0;
}
