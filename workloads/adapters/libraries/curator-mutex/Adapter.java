// The adapter protocol (docs/adapters.md) for an adapter in Java: the library's side is in CuratorMutex.java.

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.StringJoiner;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

abstract class Adapter {
    /** An answer that is not ok, with the text that the error table judges. */
    static class Refused extends Exception {
        static final long serialVersionUID = 1;

        Refused(String text) {
            super(text);
        }
    }

    private final PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    private String config;
    private volatile String grant = "";
    String lock;
    double ttl;

    /** Once, before the hello. */
    abstract void open() throws Exception;

    /** What stands in the answer beside its type; an exception is what the error table says. */
    abstract String acquire(double wait) throws Exception;

    abstract String release() throws Exception;

    /** What stands behind a key; the harness sends no space between. A library for JSON does as well. */
    static String field(String line, String key) {
        Matcher found = Pattern.compile("\"" + key + "\":\"?([^,}\"]*)").matcher(line);
        return found.find() ? found.group(1) : "";
    }

    /** A plain option of the user's; "" where he said nothing of it. */
    String option(String key) {
        Matcher found = Pattern.compile("\"options\":(\\{[^{}]*\\})").matcher(config);
        return found.find() ? field(found.group(1), key) : "";
    }

    /** host:port of every server, one's own first. */
    String endpoints() {
        StringJoiner all = new StringJoiner(",");
        Matcher found = Pattern.compile("\\[\"([^\"]*)\",(\\d+)\\]").matcher(config);
        while (found.find()) all.add(found.group(1) + ":" + found.group(2));
        return all.toString();
    }

    /** CLOCK_BOOTTIME, which no fault moves, rounded down; System.nanoTime() is not it. */
    static double now() throws IOException {
        return Double.parseDouble(Files.readString(Path.of("/proc/uptime")).split(" ")[0]);
    }

    /** The library says that the lock is lost; from any thread. */
    void lost(String reason) {
        String of = grant;
        if (of.isEmpty()) return; // nobody has asked for it yet
        try {
            say("{\"lost\":\"" + reason + "\",\"of\":" + of + ",\"at\":" + now() + "}");
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private synchronized void say(String line) {
        out.println(line);
    }

    private static String failed(Exception error, Map<String, String> errors) {
        String text = error instanceof Refused ? error.getMessage() : error.toString();
        String longest = "";
        for (String key : errors.keySet()) {
            if (text.startsWith(key) && key.length() > longest.length()) longest = key;
        }
        String kind = errors.get(longest.isEmpty() ? "*" : longest);
        String plain = text.substring(0, Math.min(text.length(), 400)).replaceAll("[\"\\\\\\p{Cntrl}]", "?");
        return ",\"type\":\"" + kind + "\",\"error\":\"" + plain + "\"";
    }

    /** Version of the jar that a class came from, as Maven noted it down there. */
    static String version(String library, Class<?> one) throws IOException {
        Properties told = new Properties();
        try (var from = one.getResourceAsStream("/META-INF/maven/org.apache.curator/" + library + "/pom.properties")) {
            told.load(from);
        }
        return told.getProperty("version");
    }

    /** Say hello, and answer commands until stdin ends. What a library prints on stdout goes to stderr. */
    void speak(String library, Class<?> one, Map<String, String> errors) throws Exception {
        System.setOut(System.err);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        config = lines.readLine();
        lock = field(config, "lock");
        ttl = Double.parseDouble(field(config, "ttl"));
        open();
        StringJoiner table = new StringJoiner(",", "{", "}");
        errors.forEach((key, meant) -> table.add("\"" + key + "\":\"" + meant + "\""));
        say("{\"hello\":{\"protocol\":1,\"library\":\"" + library + "\",\"version\":\"" + version(library, one)
            + "\",\"language\":\"Java " + System.getProperty("java.version")
            + "\",\"renewals\":\"unseen\",\"tokens\":false,\"expires\":true,\"errors\":" + table + "}}");
        for (String line; (line = lines.readLine()) != null; ) {
            String said;
            try {
                boolean acquires = field(line, "do").equals("acquire");
                if (acquires) grant = field(line, "id");
                said = ",\"type\":\"ok\"" + (acquires ? acquire(Double.parseDouble(field(line, "wait"))) : release());
            } catch (Exception error) {
                said = failed(error, errors);
            }
            say("{\"id\":" + field(line, "id") + said + "}");
        }
        Runtime.getRuntime().halt(0); // a library's threads must not keep it alive
    }
}
