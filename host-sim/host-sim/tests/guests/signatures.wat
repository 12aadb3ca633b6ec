(module
  ;; Signs a text and verifies a signature of it, with a key of P-256 that was made for this.
  (import "env" "proxy_call_foreign_function" (func $call (param i32 i32 i32 i32 i32 i32) (result i32)))
  ;; prelude

  ;; Tells whether the result of a call says yes: its first field is number 1 and true.
  (func $verdict (param $ptr i32) (param $len i32) (param $status i32)
    (call $put (local.get $ptr) (local.get $len))
    (call $put (str " status "))
    (call $put_number (local.get $status))
    (if (local.get $status) (then (call $say) (return)))
    (call $note (str " yes") (i32.eq (i32.load16_u (i32.load (i32.const 16))) (i32.const 0x0108))))
  (func $verify (param $ptr i32) (param $len i32) (param $arguments i32) (param $size i32)
    (call $verdict (local.get $ptr) (local.get $len)
      (call $call (str "verify_signature") (local.get $arguments) (local.get $size) (i32.const 16) (i32.const 20))))
  (func $sign (param $ptr i32) (param $len i32) (param $arguments i32) (param $size i32)
    (call $verdict (local.get $ptr) (local.get $len)
      (call $call (str "sign") (local.get $arguments) (local.get $size) (i32.const 16) (i32.const 20))))

  (func (export "proxy_on_request_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (call $verify (str "a good signature") (str "\0a\06sha256\12\5b0Y0\13\06\07\2a\86H\ce\3d\02\01\06\08\2a\86H\ce\3d\03\01\07\03B\00\04\03\2e\5b3\c3\22h\00X\2f\d4\d4d\7du\01\e5\a9\7f\f7\f7e\2e\cf\7d\d2z\a9\22\f3\8f\938\c7w\fa\ca\60\03\b5Ig\be\e6\83\81yuB\d1\25\d2\40\95\2c\87\11\9d\18b\1b\00\d3\5f\1aG0E\02\20\3fGK\ec\96\29\fc\8eP\b7\11C\7f\c6\1a3\20\ba\af\3e\b7\92\14\ddP\bcZ\d7\23\3c\9a\f1\02\21\00\ade\7b\3d\0c\b2\ceN\87H\00\ea\0d\97D\d5\c0P\92\c4\ea\cf\c8\9ec\b4\cc\f7\af\9d\844\22\0bsigned\20text"))
    (call $verify (str "of another text") (str "\0a\06sha256\12\5b0Y0\13\06\07\2a\86H\ce\3d\02\01\06\08\2a\86H\ce\3d\03\01\07\03B\00\04\03\2e\5b3\c3\22h\00X\2f\d4\d4d\7du\01\e5\a9\7f\f7\f7e\2e\cf\7d\d2z\a9\22\f3\8f\938\c7w\fa\ca\60\03\b5Ig\be\e6\83\81yuB\d1\25\d2\40\95\2c\87\11\9d\18b\1b\00\d3\5f\1aG0E\02\20\3fGK\ec\96\29\fc\8eP\b7\11C\7f\c6\1a3\20\ba\af\3e\b7\92\14\ddP\bcZ\d7\23\3c\9a\f1\02\21\00\ade\7b\3d\0c\b2\ceN\87H\00\ea\0d\97D\d5\c0P\92\c4\ea\cf\c8\9ec\b4\cc\f7\af\9d\844\22\0canother\20text"))
    (call $verify (str "with another hash") (str "\0a\06sha384\12\5b0Y0\13\06\07\2a\86H\ce\3d\02\01\06\08\2a\86H\ce\3d\03\01\07\03B\00\04\03\2e\5b3\c3\22h\00X\2f\d4\d4d\7du\01\e5\a9\7f\f7\f7e\2e\cf\7d\d2z\a9\22\f3\8f\938\c7w\fa\ca\60\03\b5Ig\be\e6\83\81yuB\d1\25\d2\40\95\2c\87\11\9d\18b\1b\00\d3\5f\1aG0E\02\20\3fGK\ec\96\29\fc\8eP\b7\11C\7f\c6\1a3\20\ba\af\3e\b7\92\14\ddP\bcZ\d7\23\3c\9a\f1\02\21\00\ade\7b\3d\0c\b2\ceN\87H\00\ea\0d\97D\d5\c0P\92\c4\ea\cf\c8\9ec\b4\cc\f7\af\9d\844\22\0bsigned\20text"))
    (call $verify (str "with no hash") (str "\0a\04md77\12\5b0Y0\13\06\07\2a\86H\ce\3d\02\01\06\08\2a\86H\ce\3d\03\01\07\03B\00\04\03\2e\5b3\c3\22h\00X\2f\d4\d4d\7du\01\e5\a9\7f\f7\f7e\2e\cf\7d\d2z\a9\22\f3\8f\938\c7w\fa\ca\60\03\b5Ig\be\e6\83\81yuB\d1\25\d2\40\95\2c\87\11\9d\18b\1b\00\d3\5f\1aG0E\02\20\3fGK\ec\96\29\fc\8eP\b7\11C\7f\c6\1a3\20\ba\af\3e\b7\92\14\ddP\bcZ\d7\23\3c\9a\f1\02\21\00\ade\7b\3d\0c\b2\ceN\87H\00\ea\0d\97D\d5\c0P\92\c4\ea\cf\c8\9ec\b4\cc\f7\af\9d\844\22\0bsigned\20text"))
    (call $note_result (str "because") (i32.const 0))
    (call $verify (str "no signature at all") (str "\0a\06sha256\12\5b0Y0\13\06\07\2a\86H\ce\3d\02\01\06\08\2a\86H\ce\3d\03\01\07\03B\00\04\03\2e\5b3\c3\22h\00X\2f\d4\d4d\7du\01\e5\a9\7f\f7\f7e\2e\cf\7d\d2z\a9\22\f3\8f\938\c7w\fa\ca\60\03\b5Ig\be\e6\83\81yuB\d1\25\d2\40\95\2c\87\11\9d\18b\1b\00\d3\5f\1a\01\3f\22\0bsigned\20text"))
    (call $verify (str "without a key") (str "\0a\06sha256"))
    (call $verify (str "no arguments") (str "nonsense"))
    (call $sign (str "sign") (str "\0a\06SHA256\12\8a\010\81\87\02\01\000\13\06\07\2a\86H\ce\3d\02\01\06\08\2a\86H\ce\3d\03\01\07\04m0k\02\01\01\04\206\9fI\96\ea\15\04\3d\ae\a7\a4\2ed\89\0b\08\a8\85\ba\0d\94\e5\b3\9a\9b\90d\0b\03\8d\12\9d\a1D\03B\00\04\03\2e\5b3\c3\22h\00X\2f\d4\d4d\7du\01\e5\a9\7f\f7\f7e\2e\cf\7d\d2z\a9\22\f3\8f\938\c7w\fa\ca\60\03\b5Ig\be\e6\83\81yuB\d1\25\d2\40\95\2c\87\11\9d\18b\1b\00\d3\5f\1a\0bsigned\20text"))
    (call $sign (str "sign with no hash") (str "\0a\04md77\12\8a\010\81\87\02\01\000\13\06\07\2a\86H\ce\3d\02\01\06\08\2a\86H\ce\3d\03\01\07\04m0k\02\01\01\04\206\9fI\96\ea\15\04\3d\ae\a7\a4\2ed\89\0b\08\a8\85\ba\0d\94\e5\b3\9a\9b\90d\0b\03\8d\12\9d\a1D\03B\00\04\03\2e\5b3\c3\22h\00X\2f\d4\d4d\7du\01\e5\a9\7f\f7\f7e\2e\cf\7d\d2z\a9\22\f3\8f\938\c7w\fa\ca\60\03\b5Ig\be\e6\83\81yuB\d1\25\d2\40\95\2c\87\11\9d\18b\1b\00\d3\5f\1a\0bsigned\20text"))
    (call $note_result (str "because") (i32.const 0))
    (call $sign (str "sign without a key") (str "\0a\06sha256\1a\04text"))
    (i32.const 0))
)
