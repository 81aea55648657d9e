(** A return that goes on: H steps are planned, and what later ones add, whatever is done, lies in an interval. *)
Require Import Reals Lra Lia List Arith.
From EBPI Require Import Sums Model Gap Pairs Dual Tree Mixture Main.
Open Scope R_scope.

Section Tail.
Variable M : mdp.
Variable p : nat -> nat -> R.
Variable rew : nat -> nat -> nat -> nat -> R.
Variable later : nat.                 (* steps after the planned ones, as many as one likes *)
Variables lo hi : nat -> R.           (* of the rewards at these steps *)
Hypothesis Hp : kernel M p.
Hypothesis Hrew : forall n s a j, (n < later)%nat -> lo n <= rew n s a j <= hi n.
Variable beta : R.
Hypothesis Hb : beta <> 0.

(** The planned problem: the same without the later steps. *)
Definition planned : mdp :=
  {| amax := amax M; row := fun n => row M (later + n); K := K M; nxt := fun n => nxt M (later + n) |}.
Definition planned_rew (n : nat) := rew (later + n).
Definition planned_part (sig : memory -> nat -> nat -> nat -> R) (past : memory) (n : nat) := sig past (later + n)%nat.

Lemma exp_scaled c x y : x <= y -> (0 < c -> exp (c * x) <= exp (c * y)) /\ (c < 0 -> exp (c * y) <= exp (c * x)).
Proof. intros L. split; intros S; apply exp_mono; nra. Qed.

Lemma mean_between k q f l u : simplex k q -> (forall j, (j < k)%nat -> l <= f j <= u) -> l <= mean k q f <= u.
Proof.
  intros [Pq S] H. rewrite <- (mean_const k q l S), <- (mean_const k q u S). split; apply mean_le; auto; intros; apply H; auto.
Qed.

(** After the planned steps. *)
Lemma later_part sig n past s paid : proper M sig -> (n <= later)%nat ->
  (0 < beta -> exp (beta * (paid + rsum n lo)) <= Ereturn M p rew beta sig n past s paid <= exp (beta * (paid + rsum n hi))) /\
  (beta < 0 -> exp (beta * (paid + rsum n hi)) <= Ereturn M p rew beta sig n past s paid <= exp (beta * (paid + rsum n lo))).
Proof.
  intros G. revert past s paid. induction n as [|n IH]; intros past s paid L.
  - simpl. rewrite Rplus_0_r. split; intros; lra.
  - cbn [Ereturn rsum]. split; intros S; (apply mean_between; [apply G|]); intros a _; (apply mean_between; [apply Hp|]); intros j _;
      destruct (IH ((s, a, j) :: past) (nxt M n s a j) (paid + rew n s a j)) as [I1 I2]; try lia;
      specialize (Hrew n s a j ltac:(lia)).
    + specialize (I1 S). destruct I1 as [A B]. split; [apply Rle_trans with (2 := A)|apply Rle_trans with (1 := B)]; apply exp_mono; nra.
    + specialize (I2 S). destruct I2 as [A B]. split; [apply Rle_trans with (2 := A)|apply Rle_trans with (1 := B)]; apply exp_mono; nra.
Qed.

Lemma whole_return sig m past s paid : proper M sig ->
  let part := Ereturn planned p planned_rew beta (planned_part sig) m past s paid in
  let whole := Ereturn M p rew beta sig (later + m) past s paid in
  (0 < beta -> exp (beta * rsum later lo) * part <= whole <= exp (beta * rsum later hi) * part) /\
  (beta < 0 -> exp (beta * rsum later hi) * part <= whole <= exp (beta * rsum later lo) * part).
Proof.
  intros G. cbv zeta. revert past s paid. induction m as [|m IH]; intros past s paid.
  - rewrite Nat.add_0_r. change (Ereturn planned p planned_rew beta (planned_part sig) 0 past s paid) with (exp (beta * paid)).
    assert (E : forall x, exp (beta * x) * exp (beta * paid) = exp (beta * (paid + x))) by (intros; rewrite <- exp_plus; f_equal; ring).
    rewrite !E. apply (later_part sig later past s paid G (le_n later)).
  - rewrite Nat.add_succ_r. cbn [Ereturn].
    split; intros S; rewrite <- !mean_scal; split; (apply mean_le; [apply G|]); intros a _;
      rewrite <- !mean_scal; (apply mean_le; [apply Hp|]); intros j _;
      destruct (IH ((s, a, j) :: past) (nxt M (later + m) s a j) (paid + rew (later + m) s a j)) as [I1 I2];
      try (specialize (I1 S); apply I1); try (specialize (I2 S); apply I2).
Qed.

Theorem tail_value sig m s : proper M sig ->
  let part := V planned p planned_rew beta (planned_part sig) m s in
  part + rsum later lo <= V M p rew beta sig (later + m) s <= part + rsum later hi.
Proof.
  intros G part. unfold part, V.
  destruct (whole_return sig m nil s 0 G) as [A B]. cbv zeta in A, B.
  set (x := Ereturn planned p planned_rew beta (planned_part sig) m nil s 0) in *.
  set (y := Ereturn M p rew beta sig (later + m) nil s 0) in *.
  assert (Px : 0 < x).
  { unfold x. rewrite Ereturn_Zsig. apply Rmult_lt_0_compat; [apply exp_pos|].
    apply Zsig_pos; [exact Hp|intros; apply exp_pos|]. intros past n s'. apply G. }
  assert (Step : forall u v, 0 < u -> u <= v -> ln u <= ln v) by (intros; apply ln_mono; auto).
  assert (Log : forall r, ln (exp (beta * r) * x) = beta * r + ln x).
  { intros r. rewrite ln_mult by (try apply exp_pos; auto). rewrite ln_exp. reflexivity. }
  assert (Pe : forall r, 0 < exp (beta * r) * x) by (intros; apply Rmult_lt_0_compat; [apply exp_pos|auto]).
  destruct (Rlt_dec 0 beta) as [S|S].
  - destruct (A S) as [A1 A2]. pose proof (Step _ _ (Pe _) A1) as L1. assert (Py : 0 < y) by (specialize (Pe (rsum later lo)); lra).
    pose proof (Step _ _ Py A2) as L2. rewrite Log in L1, L2.
    split; [apply Rmult_le_reg_r with beta|apply Rmult_le_reg_r with beta]; auto;
      rewrite Rmult_plus_distr_r; unfold Rdiv; rewrite !Rmult_assoc, !Rinv_l by lra; lra.
  - assert (S' : beta < 0) by lra. destruct (B S') as [B1 B2]. pose proof (Step _ _ (Pe _) B1) as L1.
    assert (Py : 0 < y) by (specialize (Pe (rsum later hi)); lra).
    pose proof (Step _ _ Py B2) as L2. rewrite Log in L1, L2.
    assert (E : forall u, u / beta = - u / - beta) by (intros; field; auto).
    rewrite !E. split; (apply Rmult_le_reg_r with (- beta); [lra|]);
      rewrite Rmult_plus_distr_r; unfold Rdiv; rewrite !Rmult_assoc, !Rinv_l by lra; lra.
Qed.

(** A claim about the planned steps is one about all of them, with the interval of the later ones on top. *)
Theorem tail_claim c c' : claim_true planned p c -> c_beta c = beta -> c_rew c = planned_rew ->
  (forall n s, c_pi c n s = c_pi c' (later + n)%nat s) -> legal M (c_pi c') ->
  c_beta c' = beta -> c_rew c' = rew -> c_H c' = (later + c_H c)%nat -> c_s1 c' = c_s1 c ->
  c_low c' <= c_low c + rsum later lo -> c_up c + rsum later hi <= c_up c' ->
  c_eps c + (rsum later hi - rsum later lo) <= c_eps c' -> claim_true M p c'.
Proof.
  intros [T1 T2] E1 E2 E3 Lg E4 E5 E6 E7 HL HU HG. unfold claim_true, V_of in *. rewrite E1, E2 in *. rewrite E4, E5, E6, E7.
  assert (D : V planned p planned_rew beta (planned_part (det (c_pi c'))) (c_H c) (c_s1 c) =
              V planned p planned_rew beta (det (c_pi c)) (c_H c) (c_s1 c)).
  { assert (Q : forall n past s paid, Ereturn planned p planned_rew beta (planned_part (det (c_pi c'))) n past s paid =
                                     Ereturn planned p planned_rew beta (det (c_pi c)) n past s paid).
    { induction n as [|n IH]; intros past s paid; [reflexivity|]. cbn [Ereturn]. apply rsum_ext. intros a _. f_equal.
      - unfold planned_part, det. rewrite E3. reflexivity.
      - apply mean_ext. intros j _. apply IH. }
    unfold V. rewrite Q. reflexivity. }
  pose proof (tail_value (det (c_pi c')) (c_H c) (c_s1 c) (det_proper M _ Lg)) as [P1 P2]. cbv zeta in P1, P2. rewrite D in P1, P2.
  split; [lra|]. intros sig G.
  pose proof (tail_value sig (c_H c) (c_s1 c) G) as [S1 S2]. cbv zeta in S1, S2.
  assert (G' : proper planned (planned_part sig)) by (intros past n s; apply G).
  destruct (T2 _ G') as [U1 U2]. split; lra.
Qed.
End Tail.
