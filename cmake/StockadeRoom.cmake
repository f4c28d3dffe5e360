# stockade_room(<dir-name> [NAME target] [DEPS targets...] [TEST_DEPS targets...])
#
# Called from the room's own CMakeLists.txt, e.g. userspace/model/CMakeLists.txt:
#     stockade_room(model DEPS stockade_base stockade_wire absl::strings)
# makes
#   stockade_model            library of all *.cc that are not tests, fuzzers, benchmarks or mains (INTERFACE if there are none)
#   model_event_test          from event_test.cc, ctest label unit          (build/<preset>/bin/tests)
#   model_event_root_test     from event_root_test.cc, ctest label root
#                             (a long test's further parts: event_root_test_<part>.cc, event_test_<part>.cc)
#   model_event_benchmark     from event_benchmark.cc                       (build/<preset>/bin)
#   model_event_fuzz          from event_fuzz.cc, only in the fuzz preset   (build/<preset>/bin/fuzz)
#   room_model                everything above: ninja room_model
# Sources include by path from the root of the repository: #include "userspace/model/sandbox.h".
# DEPS may name rooms that come later; <dir-name> may be a subdirectory of the caller's (bpf/CMakeLists.txt: stockade_room(wire)).
function(stockade_room dir_name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "NAME" "DEPS;TEST_DEPS")
    if(arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "stockade_room(${dir_name}): unknown arguments ${arg_UNPARSED_ARGUMENTS}")
    endif()
    set(dir ${CMAKE_CURRENT_SOURCE_DIR})
    if(IS_DIRECTORY ${dir}/${dir_name})
        set(dir ${dir}/${dir_name})
    endif()
    set(room ${dir_name})
    if(arg_NAME)
        set(room ${arg_NAME})
    endif()
    set(lib stockade_${room})

    file(GLOB all CONFIGURE_DEPENDS ${dir}/*.cc)
    set(sources ${all})
    list(FILTER sources EXCLUDE REGEX "_(test|fuzz|benchmark|main)\\.cc$|_test_[a-z]+\\.cc$")
    if(sources)
        add_library(${lib} STATIC ${sources})
        target_include_directories(${lib} PUBLIC ${PROJECT_SOURCE_DIR})
        target_link_libraries(${lib} PUBLIC ${arg_DEPS} PRIVATE stockade_flags)
    else()
        add_library(${lib} INTERFACE)
        target_include_directories(${lib} INTERFACE ${PROJECT_SOURCE_DIR})
        target_link_libraries(${lib} INTERFACE ${arg_DEPS})
    endif()
    add_custom_target(room_${room})
    add_dependencies(room_${room} ${lib})

    foreach(source IN LISTS all)
        get_filename_component(stem ${source} NAME_WE)
        set(parts ${all})
        list(FILTER parts INCLUDE REGEX "/${stem}_[a-z]+\\.cc$")
        if(stem MATCHES "_root_test$")
            stockade_test(${room}_${stem} SOURCES ${source} ${parts} DEPS ${lib} ${arg_TEST_DEPS} LABELS root)
        elseif(stem MATCHES "_test$")
            stockade_test(${room}_${stem} SOURCES ${source} ${parts} DEPS ${lib} ${arg_TEST_DEPS} LABELS unit)
        elseif(stem MATCHES "_benchmark$")
            stockade_binary(${room}_${stem} SOURCES ${source} DEPS ${lib} ${arg_TEST_DEPS} benchmark::benchmark_main)
        elseif(stem MATCHES "_fuzz$" AND STOCKADE_FUZZ)
            # "// BUILT_FROM a.cc b.cc" in it: of the room it needs no more, and the rest need not be compiled for it.
            file(STRINGS ${source} from REGEX "^// BUILT_FROM ")
            if(from)
                string(REGEX REPLACE "^// BUILT_FROM " "" from "${from}")
                separate_arguments(from)
                list(TRANSFORM from PREPEND ${dir}/)
                stockade_fuzzer(${room}_${stem} SOURCES ${source} ${from} DEPS ${arg_DEPS} ${arg_TEST_DEPS})
            else()
                stockade_fuzzer(${room}_${stem} SOURCES ${source} DEPS ${lib} ${arg_TEST_DEPS})
            endif()
        else()
            continue()
        endif()
        add_dependencies(room_${room} ${room}_${stem})
    endforeach()
endfunction()

# What ./dev test builds when it runs no more than the unit rung: enough for a sanitizer, and two thirds of all.
add_custom_target(unit_tests)

# stockade_binary(<name> SOURCES files... [DEPS targets...] [STATIC | STATIC_PIE])      an executable in build/<preset>/bin
# STATIC_PIE: nothing is left to the dynamic loader, which is half of what a short-lived program costs. Not for what looks up names:
# glibc's resolver and NSS load libraries.
function(stockade_binary name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "STATIC;STATIC_PIE" "" "SOURCES;DEPS")
    foreach(source IN LISTS arg_SOURCES)
        if(NOT IS_ABSOLUTE ${source} AND NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${source})
            # Fails when this target is built, not when anything is configured: a room that is half written stops only itself.
            message(WARNING "${name}: ${source} does not exist")
            add_custom_target(${name} ALL COMMAND ${CMAKE_COMMAND} -E echo "${name}: ${source} does not exist" COMMAND false)
            set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR})
            return()
        endif()
    endforeach()
    add_executable(${name} ${arg_SOURCES})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${name} PRIVATE ${arg_DEPS} stockade_flags)
    if(arg_STATIC AND NOT STOCKADE_SANITIZE)
        target_link_options(${name} PRIVATE -static)
    elseif(arg_STATIC_PIE AND NOT STOCKADE_SANITIZE)
        target_compile_options(${name} PRIVATE -fPIE)
        target_link_options(${name} PRIVATE -static-pie)
    endif()
endfunction()

# stockade_test(<name> SOURCES files... [DEPS targets...] LABELS unit|root|live [TIMEOUT seconds] [ENV K=V...] [NO_MAIN])
# One gtest executable in build/<preset>/bin/tests. ./dev test counts its cases one by one. Tests find the tree and the binaries by
# STOCKADE_SOURCE_DIR and STOCKADE_BIN_DIR in the environment. A helper binary that tests start is a stockade_trigger().
function(stockade_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "NO_MAIN" "TIMEOUT" "SOURCES;DEPS;LABELS;ENV")
    set(main GTest::gmock GTest::gtest_main)
    if(arg_NO_MAIN)
        set(main GTest::gmock GTest::gtest)
    endif()
    stockade_binary(${name} SOURCES ${arg_SOURCES} DEPS ${arg_DEPS} ${main})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/tests)
    add_test(NAME ${name} COMMAND ${name})
    if(arg_LABELS STREQUAL "unit")
        add_dependencies(unit_tests ${name})
    endif()
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 300)
    endif()
    set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS};gtest" TIMEOUT ${arg_TIMEOUT}
        ENVIRONMENT "STOCKADE_SOURCE_DIR=${PROJECT_SOURCE_DIR};STOCKADE_BIN_DIR=${CMAKE_BINARY_DIR}/bin;${arg_ENV}")
endfunction()

# stockade_trigger(<name> SOURCES files... [DEPS targets...])     a static helper of the live tests, in build/<preset>/bin/tests
function(stockade_trigger name)
    stockade_binary(${name} ${ARGN} STATIC)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/tests)
endfunction()

# stockade_script_test(<name> COMMAND args... LABELS labels... [TIMEOUT seconds] [ENV K=V...])
# A test that is no gtest binary: one result by its exit status (0 passed, 77 skipped, the last line of output is the reason), or one
# per line "passed|failed|skipped<TAB>name<TAB>reason" that it appends to the file named by STOCKADE_RESULTS.
function(stockade_script_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "COMMAND;LABELS;ENV")
    add_test(NAME ${name} COMMAND ${arg_COMMAND})
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 600)
    endif()
    set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} SKIP_RETURN_CODE 77
        ENVIRONMENT "STOCKADE_SOURCE_DIR=${PROJECT_SOURCE_DIR};STOCKADE_BIN_DIR=${CMAKE_BINARY_DIR}/bin;${arg_ENV}")
endfunction()

# stockade_fuzzer(<name> SOURCES files... [DEPS targets...])     in build/fuzz/bin/fuzz, for ./dev fuzz
# Each is a test of the rung fuzz as well: tests/fuzz/run.sh, a row of tests/fuzz/runs.list and seeds in tests/fuzz/<name>.
if(STOCKADE_FUZZ)
    add_custom_target(fuzzers)
endif()
function(stockade_fuzzer name)
    stockade_binary(${name} ${ARGN})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/fuzz)
    add_dependencies(fuzzers ${name})
    stockade_script_test(${name} COMMAND ${PROJECT_SOURCE_DIR}/tests/fuzz/run.sh ${CMAKE_BINARY_DIR}/bin/fuzz/${name}
        LABELS fuzz TIMEOUT 300)
endfunction()
