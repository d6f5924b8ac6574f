/* The flat C interface of the planner: text in, text out.
 *
 * Every function returns 0 on success and -1 on failure; on failure
 * SoybeanLastError() gives the message of this thread's last failure. Texts
 * returned through `out` are JSON, NUL-terminated, owned by the caller, and
 * freed with SoybeanFree(). No exception crosses this interface.
 * The JSON forms are specified in docs/interface.md. */
#ifndef SOYBEAN_C_API_H_
#define SOYBEAN_C_API_H_

#ifdef __cplusplus
extern "C" {
#endif

#define SOYBEAN_API __attribute__((visibility("default")))

/* The version of this interface and its JSON forms. */
SOYBEAN_API int SoybeanVersion(void);

/* The message of the last failure in this thread; valid until the next call. */
SOYBEAN_API const char* SoybeanLastError(void);

SOYBEAN_API void SoybeanFree(char* text);

/* Searches for a plan. */
SOYBEAN_API int SoybeanPlan(const char* graph, const char* options, char** out);

/* Writes the parallel graph of a plan. */
SOYBEAN_API int SoybeanLower(const char* graph, const char* plan, const char* options, char** out);

/* The space that SoybeanPlan searches with these options, for tests. */
SOYBEAN_API int SoybeanSpace(const char* graph, const char* options, char** out);

/* The rules of all operators of a graph, for tests and for reports. */
SOYBEAN_API int SoybeanRules(const char* graph, char** out);

/* An operation for MXNet's engine (an EngineSyncFunc): writes the time at which it runs, in nanoseconds
 * of a clock that only goes forward, to the int64_t at `slot`. */
SOYBEAN_API void SoybeanStampTime(void* run_context, void* slot);

/* Another one: `slots` is an int64_t count and so many addresses of such slots. Throws a std::exception
 * where one is 0, which the engine takes as the error of the operation: what it writes is not computed. */
SOYBEAN_API void SoybeanRequireStamps(void* run_context, void* slots);

/* The stages of a pipeline for a profile of layers. */
SOYBEAN_API int SoybeanStages(const char* profile, const char* options, char** out);

#ifdef __cplusplus
}
#endif

#endif /* SOYBEAN_C_API_H_ */
