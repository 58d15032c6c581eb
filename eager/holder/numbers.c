/*
 * eager/holder/numbers: numbers that differ from call to call, such as the step size of an optimizer. The numbers of a call are
 * compiled into its library, so each would need its own library. If an argument has had several values, one library serves all
 * of them: it takes the number as a zero-dimensional tensor, and reads it at run time.
 *
 * While the holder works on a call, it replaces the number among its arguments by such a tensor. All later steps (packing,
 * requests, inputs) only see the tensor.
 */
#include "eager/compile/eager_face.h"
#include "eager/holder/holder_internal.h"
#include "loader/tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Number of values of an argument that are compiled in; the next one is substituted. */
#define VALUES_COMPILED_IN 2
/*
 * PyTorch refuses numbers that the tensors' dtype cannot represent. Half precision can represent these numbers, and all other
 * dtypes more, so no number that PyTorch refuses is substituted.
 */
#define MOST_SUBSTITUTED 65504.0

/* The values that one argument has had. Under holder->lock. */
struct aoticache_number {
    double seen[VALUES_COMPILED_IN];
    uint32_t count; /* of seen */
    bool is_fixed;  /* a library that takes it as a tensor could not be made: it is not substituted again */
};

static bool is_number(const aoticache_holder *holder, size_t argument)
{
    const aoticache_schema_argument *said = &holder->schema->arguments[argument];
    const aoticache_type *type = said->type->kind == AOTICACHE_TYPE_OPTIONAL ? said->type->elements[0] : said->type;
    return argument < 64 && (type->kind == AOTICACHE_TYPE_NUMBER || type->kind == AOTICACHE_TYPE_FLOAT);
}

/* Returns false for exponents: PyTorch uses roots and products for some, whose results differ from pow() for -inf and -0. */
static bool may_be_substituted(const aoticache_holder *holder, size_t argument)
{
    return is_number(holder, argument) && strcmp(holder->schema->arguments[argument].name, "exponent") != 0;
}

/* Returns false for 0, too: beta=0 in a matrix multiplication means that NaN is not propagated. */
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
 * Returns whether all tensors are real floats. With integer tensors a number decides the dtype of the results, and PyTorch's
 * compiler loses it for unknown numbers. It leaves complex tensors to PyTorch's own kernels.
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

/* Substituted tensors are recognized by this pointer to their sizes. */
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

/* Returns the state of an argument. Under holder->lock. NULL without memory. */
static struct aoticache_number *number_at(aoticache_holder *holder, size_t argument)
{
    if (holder->numbers == NULL)
        holder->numbers = calloc(holder->num_arguments, sizeof *holder->numbers);
    return holder->numbers != NULL ? &holder->numbers[argument] : NULL;
}

/* Returns true if the argument has had the maximum number of compiled-in values, and this is another one. */
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

/* Notes values of a call or library. Returns the arguments to be substituted from now on. Under holder->lock. */
static uint64_t note_values(aoticache_holder *holder, const aoticache_value *arguments)
{
    uint64_t substituted = 0;
    if (holder->device.type != AOTICACHE_DEVICE_TYPE_CPU || /* not tested on others */
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

/* ---- substituting ---- */

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

/* Creating a tensor takes longer than many kernels run. So each thread keeps some, for one call at a time. */
struct aoticache_own_numbers {
    bool is_taken;
    double values[AOTICACHE_NUMBERS_MOST];
    AtenTensorHandle tensors[AOTICACHE_NUMBERS_MOST]; /* of the values; NULL: not created yet */
};

static AtenTensorHandle make_tensor(double *value)
{
    AtenTensorHandle tensor = NULL;
    (void)aoticache_tensor_from_blob(value, AOTICACHE_DTYPE_FLOAT64, 0, NULL, NULL, &tensor, NULL);
    return tensor;
}

/* Returns this thread's tensors; NULL if they are in use (a kernel itself calls an operator), or without memory. */
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

bool aoticache_numbers_make_tensors(aoticache_numbers *numbers)
{
    struct aoticache_own_numbers *own = numbers->own = take_own();
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

void aoticache_numbers_take_back(aoticache_numbers *numbers)
{
    for (size_t i = 0; i < numbers->count; i++) {
        aoticache_substituted_number *substituted = &numbers->substituted[i];
        if (numbers->own == NULL)
            aoticache_tensor_free(substituted->view.handle);
        /* A call that was answered may have stored a result there. */
        if (substituted->place->kind == AOTICACHE_VALUE_TENSOR && substituted->place->as.tensor == &substituted->view)
            *substituted->place =
                (aoticache_value){.kind = AOTICACHE_VALUE_DOUBLE, .as.double_value = substituted->value};
    }
    if (numbers->own != NULL)
        numbers->own->is_taken = false;
    numbers->own = NULL;
    numbers->count = 0;
}
