// Events with something in them, for tests.
#pragma once

#include <google/protobuf/timestamp.pb.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "userspace/model/event.pb.h"

namespace stockade::model {

// Leaves one field in `one_in` out, of 1 none; strings get awkward characters.
class Filler {
  public:
    explicit Filler(uint32_t seed, uint32_t one_in = 2) : random_(seed), one_in_(one_in) {}

    uint32_t Random() { return static_cast<uint32_t>(random_()); }

    void Fill(google::protobuf::Message* message) {
        if (message->GetDescriptor()->full_name() == "google.protobuf.Timestamp") {
            auto* time = static_cast<google::protobuf::Timestamp*>(message);
            time->set_seconds(static_cast<int64_t>(random_() % 253402300799ULL));
            time->set_nanos(static_cast<int32_t>(random_() % 1000000000));
            return;
        }
        const auto* type = message->GetDescriptor();
        for (int i = 0; i < type->field_count(); ++i) {
            if (one_in_ == 1 || random_() % one_in_) Set(message, type->field(i));
        }
    }

  private:
    std::string Text() {
        static const char* const kParts[] = {"a", "\"",     "\\",     "/",  "\n", "\x01",  "\x7f",
                                             "é", "\u2028", "\u202e", "😀", "<",  "\u0085"};
        std::string text;
        for (size_t i = random_() % 6; i > 0; --i) text += kParts[random_() % std::size(kParts)];
        return text;
    }

    void Set(google::protobuf::Message* m, const google::protobuf::FieldDescriptor* f) {
        const auto* r = m->GetReflection();
        if (f->is_map()) {
            auto* event = static_cast<v1::Sandbox*>(m);
            (*event->mutable_labels())[Text()] = Text();
            (*event->mutable_labels())["zone"] = Text();
        } else if (f->is_repeated()) {
            for (int i = 0; i < 2; ++i) {
                if (f->message_type())
                    Fill(r->AddMessage(m, f));
                else
                    r->AddString(m, f, Text());
            }
        } else {
            SetOne(m, f, *r);
        }
    }

    void SetOne(google::protobuf::Message* m, const google::protobuf::FieldDescriptor* f,
                const google::protobuf::Reflection& r) {
        switch (f->cpp_type()) {
            case google::protobuf::FieldDescriptor::CPPTYPE_STRING:
                return r.SetString(m, f, Text());
            case google::protobuf::FieldDescriptor::CPPTYPE_BOOL:
                return r.SetBool(m, f, random_() % 2);
            case google::protobuf::FieldDescriptor::CPPTYPE_UINT32:
                return r.SetUInt32(m, f, random_());
            case google::protobuf::FieldDescriptor::CPPTYPE_INT32:
                return r.SetInt32(m, f, int32_t(random_()));
            case google::protobuf::FieldDescriptor::CPPTYPE_UINT64:
                return r.SetUInt64(m, f, uint64_t{random_()} << 32 | random_());
            case google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE:
                return Fill(r.MutableMessage(m, f));
            default:
                FAIL() << "a type that the test does not know: " << f->full_name();
        }
    }

    std::mt19937 random_;
    const uint32_t one_in_;
};

}  // namespace stockade::model
