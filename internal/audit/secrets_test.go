package audit

import "testing"

func TestSecrets(t *testing.T) {
	t.Parallel()
	s := NewSecrets([]string{"ssn", "card.number"})
	const key = "0123456789abcdefghijABCDEFGHIJ012345"
	put := func(dst, secret []byte) []byte { return append(append(append(dst, '<'), secret...), '>') }
	for text, want := range map[string]string{
		"plain: text":                    "plain: text",
		"Authorization: Bearer abc.def":  "Authorization: <Bearer abc.def>",
		"https://user:pw@host/?token=t1": "https://<user:pw>@host/?token=<t1>",
		"key ghp_0123456789abcdef":       "key <ghp_0123456789abcdef>",
		"npm_config_registry is a name":  "npm_config_registry is a name",
		"SG. 12 and ya29.5":              "SG. 12 and ya29.5",
		"AIza" + key:                     "<AIza" + key + ">",
		"(npm_" + key + ")":              "(<npm_" + key + ">)",
		"SG." + key + "." + key + ".":    "<SG." + key + "." + key + ">.",
		"ya29." + key + ", x":            "<ya29." + key + ">, x",
	} {
		if got := string(s.Mask([]byte(text), put)); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	for name, want := range map[string]bool{"Api-Key": true, "SSN": true, "name": false} {
		if s.Named([]byte(name)) != want {
			t.Errorf("%s: not %v", name, want)
		}
	}
	if path := [][]byte{[]byte("Card"), []byte("number")}; !s.Placed(path) || s.Placed(path[1:]) {
		t.Error("the pattern with dots does not stand for its path only")
	}
}

// Each form of a key is found by its first two bytes, which keyBegins has in a second list.
func TestKeyForms(t *testing.T) {
	t.Parallel()
	for _, form := range keyForms {
		for _, prefix := range form.prefixes {
			key := prefix + "0123456789abcdefghijABCDEFGHIJ012345"
			if found, got := keyFormOf([]byte(key)); found.least != form.least || got != prefix {
				t.Errorf("%s is not found", prefix)
			}
			if !suspicious("a " + key) {
				t.Errorf("%s is not suspicious", prefix)
			}
		}
	}
}

func TestMaskText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "git_log": "git_log",
		"unknown tool: ghp_0123456789abcdefghijABCDEFGHIJ012345": "unknown tool: [redacted]",
		"https://user:s3cr3ts3cr3t@host/":                        "https://[redacted]@host/",
	} {
		if got := MaskText(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
