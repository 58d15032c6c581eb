/*
 * eager/torch/stable_pool: the functions that PyTorch calls on the stable C ABI. Its calls carry nothing that says
 * which operator is meant, so every operator has a function of its own, out of these.
 */
#include "eager/torch/binding_state.h"

#define FUNCTION(number)                                                                       \
    static void function_##number(uint64_t *stack, uint64_t num_inputs, uint64_t num_outputs) \
    {                                                                                          \
        aoticache_stable_call(0##number, stack, num_inputs, num_outputs);                      \
    }
#define NAME(number) function_##number,

/* Numbers in octal, 0 to 0777: what X makes of each. */
#define EIGHT(X, digits) \
    X(digits##0) X(digits##1) X(digits##2) X(digits##3) X(digits##4) X(digits##5) X(digits##6) X(digits##7)
#define SIXTY_FOUR(X, digits)                                                               \
    EIGHT(X, digits##0) EIGHT(X, digits##1) EIGHT(X, digits##2) EIGHT(X, digits##3)         \
    EIGHT(X, digits##4) EIGHT(X, digits##5) EIGHT(X, digits##6) EIGHT(X, digits##7)
#define ALL(X)                                                                      \
    SIXTY_FOUR(X, 0) SIXTY_FOUR(X, 1) SIXTY_FOUR(X, 2) SIXTY_FOUR(X, 3)             \
    SIXTY_FOUR(X, 4) SIXTY_FOUR(X, 5) SIXTY_FOUR(X, 6) SIXTY_FOUR(X, 7)

ALL(FUNCTION)

const aoticache_stable_fn aoticache_stable_functions[AOTICACHE_STABLE_SLOTS] = {ALL(NAME)};
